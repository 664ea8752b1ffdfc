"""What the `DATABASE_URL`s of servers have in common: where one is, as whom, how we use it.

No message repeats more of it than an option's name: whoever forgets to escape a password
moves it into the host, the path or the options.
"""

import re
import ssl
from collections.abc import Collection, Mapping
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from msgspec import Struct

from duetime.errors import ConfigError
from duetime.instants import parse_duration

POOL_SIZE_MIN, POOL_SIZE_MAX, POOL_SIZE_DEFAULT = 4, 1_000, 10
STATEMENT_TIMEOUT_MS_DEFAULT = 30_000

TLS_FILES = ("ssl-ca", "ssl-cert", "ssl-key")
"""The options that name files, as `tls_context` takes them."""

_HOST = r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?"
_HOSTS = re.compile(rf"(?:{_HOST}(?:,{_HOST})*)?")


class Url(Struct, frozen=True, kw_only=True):
    """What any of them says."""

    parts: SplitResult
    hosts: str
    """As they were written, separated by commas; it may be empty."""
    database: str
    pool_size: int
    statement_timeout_ms: int
    options: dict[str, str]
    """The others."""


def read(url: str, *, form: str, options: Collection[str], files: Collection[str]) -> Url:
    """`ConfigError` says what is wrong with it. Of its `options`, `files` name files."""
    try:
        parts = urlsplit(url)
        given = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
        _ = parts.port if "," not in parts.netloc else None  # Raises where there is none such.
    except ValueError:
        raise refused(f"must have the form {form}") from None
    hosts = parts.netloc.rpartition("@")[2]
    database = unquote(parts.path.removeprefix("/"))
    if (
        parts.fragment
        or parts.netloc.count("@") > 1
        or not _HOSTS.fullmatch(hosts)
        or not re.fullmatch(r"[^/@:?#]+", database)
    ):
        raise of_another_form(form)
    known = ("pool_size", "statement_timeout", *options)
    for option in given:
        if option not in known:
            named = f" {option!r}" if re.fullmatch("[a-z_-]{1,40}", option) else ""
            raise refused(f"has an unknown option{named}; known are {', '.join(known)}")
    pool_size = _pool_size(given.pop("pool_size", str(POOL_SIZE_DEFAULT)))
    statement_timeout_ms = _statement_timeout_ms(given.pop("statement_timeout", None))
    for option in files:
        if option in given and not Path(given[option]).is_file():
            raise refused(f"must have the path of a file as {option}")
    return Url(
        parts=parts,
        hosts=hosts,
        database=database,
        pool_size=pool_size,
        statement_timeout_ms=statement_timeout_ms,
        options=given,
    )


def tls_context(mode: str, options: Mapping[str, str]) -> ssl.SSLContext:
    """For the modes `required`, which checks nothing, `verify_ca` and `verify_identity`."""
    if "ssl-key" in options and "ssl-cert" not in options:
        raise refused("must have ssl-cert beside ssl-key")
    try:
        context = ssl.create_default_context(cafile=options.get("ssl-ca"))
        context.check_hostname = mode == "verify_identity"
        if not mode.startswith("verify"):
            context.verify_mode = ssl.CERT_NONE
        if "ssl-cert" in options:
            context.load_cert_chain(options["ssl-cert"], options.get("ssl-key"))
    except ssl.SSLError as error:
        raise refused(f"names files that TLS cannot use: {error.reason}") from error
    return context


def refused(problem: str) -> ConfigError:
    return ConfigError(f"DATABASE_URL {problem}")


def of_another_form(form: str) -> ConfigError:
    return refused(
        f"must have the form {form}, where the user's and the password's / ? # @ : and %"
        " are written %2F %3F %23 %40 %3A and %25"
    )


def _pool_size(text: str) -> int:
    if re.fullmatch(r"\d{1,4}", text) and POOL_SIZE_MIN <= int(text) <= POOL_SIZE_MAX:
        return int(text)
    raise refused(f"must have {POOL_SIZE_MIN} to {POOL_SIZE_MAX} as pool_size")


def _statement_timeout_ms(text: str | None) -> int:
    if text is None:
        return STATEMENT_TIMEOUT_MS_DEFAULT
    try:
        timeout_ms = parse_duration(text)
    except ValueError:
        timeout_ms = 0
    if not 1_000 <= timeout_ms <= 3_600_000:
        raise refused("must have a duration from 1s to 1h as statement_timeout")
    return timeout_ms
