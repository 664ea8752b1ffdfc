"""`DATABASE_URL` of a Cassandra: where it is, as whom, and which datacenter is ours.

No message repeats more of it than an option's name: whoever forgets to escape a password
moves it into the hosts, the path or the options.
"""

import re
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from duetime.errors import ConfigError

FORM = "cassandra://user:password@host:9042,host2/keyspace?datacenter=dc1"
PORT = 9042
_HOST = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(\d{1,5}))?")


class Address(Struct, frozen=True, kw_only=True):
    """What the URL says."""

    hosts: list[tuple[str, int]]
    keyspace: str
    name: str
    """For messages: hosts and keyspace."""
    user: str | None
    password: str
    datacenter: str | None
    """Where all nodes of Duetime live, so that its replicas alone need to agree."""


def parse(url: str) -> Address:
    """`ConfigError` says what is wrong with it."""
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
    except ValueError:
        raise _refused(f"must have the form {FORM}") from None
    account, _, hosts = parts.netloc.rpartition("@")
    found = [_HOST.fullmatch(host) for host in hosts.split(",")]
    keyspace = parts.path.removeprefix("/")
    if (
        parts.fragment
        or "@" in account
        or not all(host and int(host[2] or PORT) < 65_536 for host in found)
        or not re.fullmatch(r"[a-z][a-z0-9_]{0,47}", keyspace)
    ):
        raise _refused(
            f"must have the form {FORM}, where the user's and the password's / ? # @ : and %"
            " are written %2F %3F %23 %40 %3A and %25"
        )
    datacenter = options.pop("datacenter", None)
    for option in options:
        named = f" {option!r}" if re.fullmatch("[a-z_]{1,40}", option) else ""
        raise _refused(f"has an unknown option{named}; known is datacenter")
    user, _, password = account.partition(":")
    return Address(
        hosts=[(host[1].strip("[]"), int(host[2] or PORT)) for host in found if host],
        keyspace=keyspace,
        name=f"{hosts}/{keyspace}",
        user=unquote(user) or None,
        password=unquote(password),
        datacenter=datacenter,
    )


def _refused(problem: str) -> ConfigError:
    return ConfigError(f"DATABASE_URL {problem}")
