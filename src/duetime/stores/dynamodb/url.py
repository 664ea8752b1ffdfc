"""`DATABASE_URL` of a DynamoDB: which region, which tables, as whom.

No message repeats more of it than an option's name: whoever forgets to escape a secret key
moves it into the region, the path or the options.
"""

import re
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from duetime.errors import ConfigError
from duetime.instants import parse_duration

FORM = "dynamodb://region/prefix or dynamodb://key:secret@region/prefix"
PREFIX_DEFAULT = "duetime"
POOL_SIZE_MIN, POOL_SIZE_MAX, POOL_SIZE_DEFAULT = 4, 1_000, 50
TIMEOUT_MS_DEFAULT = 30_000
OPTIONS = ("endpoint", "pool_size", "timeout")

_REGION = re.compile(r"[a-z]{2}(?:-[a-z]+){1,3}-\d{1,2}")
_PREFIX = re.compile(r"[A-Za-z0-9_.-]{1,200}")
_PORT = r"[1-5]?\d{1,4}|6[0-4]\d{3}|65[0-4]\d\d|655[0-2]\d|6553[0-5]"
_ENDPOINT = re.compile(rf"https?://(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(?:{_PORT}))?/?")


class Address(Struct, frozen=True, kw_only=True):
    """What the URL says."""

    region: str
    prefix: str
    endpoint: str | None
    """Where it is instead of where AWS has that region."""
    key: str | None
    secret: str | None
    """Without a key and a secret, they are found where AWS's own tools find them."""
    pool_size: int
    timeout_s: float

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.endpoint or self.region}/{self.prefix}"


def parse(url: str) -> Address:
    """`ConfigError` says what is wrong with it."""
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
    except ValueError:
        raise _refused(f"must have the form {FORM}") from None
    user, at, region = parts.netloc.rpartition("@")
    key, colon, secret = user.partition(":")
    prefix = parts.path.removeprefix("/") or PREFIX_DEFAULT
    # With only one of the two, whoever wrote the URL would act as somebody else.
    is_whole = bool(key and colon and secret) if at else True
    if parts.fragment or not is_whole or ":" in secret or not _REGION.fullmatch(region):
        raise _refused(
            f"must have the form {FORM}, with a region such as eu-central-1, where the"
            " secret's / + and % are written %2F %2B and %25"
        )
    if not _PREFIX.fullmatch(prefix):
        raise _refused("must have 1 to 200 letters, digits, '_', '-' and '.' as prefix of tables")
    for option in options:
        if option not in OPTIONS:
            named = f" {option!r}" if re.fullmatch("[a-z_]{1,40}", option) else ""
            raise _refused(f"has an unknown option{named}; known are {', '.join(OPTIONS)}")
    endpoint = options.get("endpoint")
    if endpoint is not None and not _ENDPOINT.fullmatch(endpoint):
        raise _refused("must have http://host:port or https://host:port as endpoint")
    return Address(
        region=region,
        prefix=prefix,
        endpoint=endpoint and endpoint.rstrip("/"),
        key=unquote(key) or None,
        secret=unquote(secret) or None,
        pool_size=_pool_size(options.get("pool_size", str(POOL_SIZE_DEFAULT))),
        timeout_s=_timeout_ms(options.get("timeout")) / 1000,
    )


def _pool_size(text: str) -> int:
    if re.fullmatch(r"\d{1,4}", text) and POOL_SIZE_MIN <= int(text) <= POOL_SIZE_MAX:
        return int(text)
    raise _refused(f"must have {POOL_SIZE_MIN} to {POOL_SIZE_MAX} as pool_size")


def _timeout_ms(text: str | None) -> int:
    if text is None:
        return TIMEOUT_MS_DEFAULT
    try:
        timeout_ms = parse_duration(text)
    except ValueError:
        timeout_ms = 0
    if not 1_000 <= timeout_ms <= 3_600_000:
        raise _refused("must have a duration from 1s to 1h as timeout")
    return timeout_ms


def _refused(problem: str) -> ConfigError:
    return ConfigError(f"DATABASE_URL {problem}")
