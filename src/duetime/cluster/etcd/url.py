"""`MEMBERSHIP_URL` of an etcd: where it is, as whom, and how soon a silent node is dead.

No message repeats more of it than an option's name: whoever forgets to escape a password
moves it into the host, the path or the options.
"""

import re
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from msgspec import Struct

from duetime.errors import ConfigError
from duetime.instants import parse_duration

FORM = "etcd://user:password@host:2379,host:2379"
PORT_DEFAULT = 2379
TTL_S_MIN, TTL_S_MAX = 2, 600
TTL_DEFAULT = "2s"  # What etcd grants at least, unless its election timeout was raised.
ENDPOINTS_MAX = 16
_FILES = ("sslrootcert", "sslcert", "sslkey")
OPTIONS = ("ttl", *_FILES)

_HOST = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>\d{1,5}))?")


class Address(Struct, frozen=True, kw_only=True):
    """What the URL says."""

    endpoints: tuple[str, ...]
    """`host:port` of each."""
    ttl_s: int
    user: str | None
    password: str
    tls: bool
    ca_file: str | None
    cert_file: str | None
    key_file: str | None


def parse(url: str) -> Address:
    """`ConfigError` says what is wrong with it."""
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
    except ValueError:
        raise _refused(f"must have the form {FORM}") from None
    if parts.scheme not in ("etcd", "etcds"):
        raise _refused("must begin with etcd:// or etcds://")
    credentials, at, hosts = parts.netloc.rpartition("@")
    user, colon, password = credentials.partition(":")
    found = [_HOST.fullmatch(host) for host in hosts.split(",")]
    if not all(found) or (at and not (user and colon and password)) or not _ends_here(parts):
        raise _refused(
            f"must have the form {FORM}, where the user's and the password's / ? # @ : and %"
            " are written %2F %3F %23 %40 %3A and %25"
        )
    endpoints = tuple(f"{m['host']}:{m['port'] or PORT_DEFAULT}" for m in found if m)
    if len(endpoints) > ENDPOINTS_MAX or any(_port(endpoint) > 65_535 for endpoint in endpoints):
        raise _refused(f"must have at most {ENDPOINTS_MAX} hosts, with ports up to 65535")
    for option in options:
        if option not in OPTIONS:
            named = f" {option!r}" if re.fullmatch("[a-z_]{1,40}", option) else ""
            raise _refused(f"has an unknown option{named}; known are {', '.join(OPTIONS)}")
    for option in _FILES:
        if option in options and not (parts.scheme == "etcds" and Path(options[option]).is_file()):
            raise _refused(f"must have the path of a file as {option}, and begin with etcds://")
    if "sslkey" in options and "sslcert" not in options:
        raise _refused("must have sslcert where it has sslkey")
    return Address(
        endpoints=endpoints,
        ttl_s=_ttl_s(options.get("ttl", TTL_DEFAULT)),
        user=unquote(user) or None,
        password=unquote(password),
        tls=parts.scheme == "etcds",
        ca_file=options.get("sslrootcert"),
        cert_file=options.get("sslcert"),
        key_file=options.get("sslkey"),
    )


def _ends_here(parts: SplitResult) -> bool:
    return parts.path in ("", "/") and not parts.fragment and parts.netloc.count("@") <= 1


def _port(endpoint: str) -> int:
    return int(endpoint.rpartition(":")[2])


def _ttl_s(text: str) -> int:
    try:
        ttl_s, rest = divmod(parse_duration(text), 1000)
    except ValueError:
        ttl_s = rest = 0
    if rest or not TTL_S_MIN <= ttl_s <= TTL_S_MAX:
        raise _refused(f"must have whole seconds from {TTL_S_MIN}s to {TTL_S_MAX}s as ttl")
    return ttl_s


def _refused(problem: str) -> ConfigError:
    return ConfigError(f"MEMBERSHIP_URL {problem}")
