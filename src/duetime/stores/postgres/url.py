"""`DATABASE_URL` of a PostgreSQL: where it is, as whom, and how we use it.

No message repeats more of it than an option's name: whoever forgets to escape a password
moves it into the host, the path or the options.
"""

import re
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from msgspec import Struct

from duetime.errors import ConfigError
from duetime.instants import parse_duration

FORM = "postgresql://user:password@host:5432/database"
POOL_SIZE_MIN, POOL_SIZE_MAX, POOL_SIZE_DEFAULT = 4, 1_000, 10
STATEMENT_TIMEOUT_MS_DEFAULT = 30_000
SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_FILES = ("sslrootcert", "sslcert", "sslkey")
OPTIONS = ("pool_size", "statement_timeout", "sslmode", *_FILES, "host")

_HOST = r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?"
_HOSTS = re.compile(rf"{_HOST}(?:,{_HOST})*")


class Address(Struct, frozen=True, kw_only=True):
    """What the URL says."""

    dsn: str
    """For the driver: the URL without the options that are ours."""
    name: str
    """For messages: hosts and database."""
    several_hosts: bool
    pool_size: int
    statement_timeout_ms: int


def parse(url: str) -> Address:
    """`ConfigError` says what is wrong with it."""
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
    except ValueError:
        raise _refused(f"must have the form {FORM}") from None
    hosts = parts.netloc.rpartition("@")[2]
    database = unquote(parts.path.removeprefix("/"))
    if (
        parts.fragment
        or parts.netloc.count("@") > 1
        or not (_HOSTS.fullmatch(hosts) or (not hosts and "host" in options))
        or not re.fullmatch(r"[^/@:?#]+", database)
    ):
        raise _refused(
            f"must have the form {FORM}, where the user's and the password's / ? # @ : and %"
            " are written %2F %3F %23 %40 %3A and %25"
        )
    for option in options:
        if option not in OPTIONS:
            named = f" {option!r}" if re.fullmatch("[a-z_]{1,40}", option) else ""
            raise _refused(f"has an unknown option{named}; known are {', '.join(OPTIONS)}")
    pool_size = _pool_size(options.pop("pool_size", str(POOL_SIZE_DEFAULT)))
    statement_timeout_ms = _statement_timeout_ms(options.pop("statement_timeout", None))
    if options.get("sslmode", SSL_MODES[0]) not in SSL_MODES:
        raise _refused(f"must have one of {', '.join(SSL_MODES)} as sslmode")
    for option in _FILES:
        if option in options and not Path(options[option]).is_file():
            raise _refused(f"must have the path of a file as {option}")
    if "host" in options and (hosts or not options["host"].startswith("/")):
        raise _refused("must have the folder of a socket as host, and then no other host")
    return Address(
        dsn=parts._replace(scheme="postgresql", query=urlencode(options)).geturl(),
        name=f"{hosts or options['host']}/{database}",
        several_hosts="," in hosts,
        pool_size=pool_size,
        statement_timeout_ms=statement_timeout_ms,
    )


def _pool_size(text: str) -> int:
    if re.fullmatch(r"\d{1,4}", text) and POOL_SIZE_MIN <= int(text) <= POOL_SIZE_MAX:
        return int(text)
    raise _refused(f"must have {POOL_SIZE_MIN} to {POOL_SIZE_MAX} as pool_size")


def _statement_timeout_ms(text: str | None) -> int:
    if text is None:
        return STATEMENT_TIMEOUT_MS_DEFAULT
    try:
        timeout_ms = parse_duration(text)
    except ValueError:
        timeout_ms = 0
    if not 1_000 <= timeout_ms <= 3_600_000:
        raise _refused("must have a duration from 1s to 1h as statement_timeout")
    return timeout_ms


def _refused(problem: str) -> ConfigError:
    return ConfigError(f"DATABASE_URL {problem}")
