"""The databases that Duetime keeps its timers in. An adapter is imported only when used."""

import re
from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

from duetime.errors import ConfigError
from duetime.store import Store


class Adapter(NamedTuple):
    """Where the store of a scheme is found."""

    module: str
    name: str
    extra: str
    """What brings its driver: `pip install 'duetime[extra]'`."""


_POSTGRESQL = Adapter("duetime.stores.postgres", "PostgresStore", "postgresql")
_MONGODB = Adapter("duetime.stores.mongodb", "MongoStore", "mongodb")
ADAPTERS = {
    "postgresql": _POSTGRESQL,
    "postgres": _POSTGRESQL,
    "mysql": Adapter("duetime.stores.mysql", "mysql", "mysql"),
    "mariadb": Adapter("duetime.stores.mysql", "mariadb", "mysql"),
    "tidb": Adapter("duetime.stores.mysql", "tidb", "mysql"),
    "oracle": Adapter("duetime.stores.oracle", "oracle", "oracle"),
    "sqlserver": Adapter("duetime.stores.sqlserver.store", "sqlserver", "sqlserver"),
    "mongodb": _MONGODB,
    "mongodb+srv": _MONGODB,
    "cassandra": Adapter("duetime.stores.cassandra", "CassandraStore", "cassandra"),
    "dynamodb": Adapter("duetime.stores.dynamodb", "DynamoStore", "dynamodb"),
}
"""Those that need a driver. Their constructors take the whole URL; what that may look like says
each one's own module."""
SCHEMES = ("memory", "sqlite", *ADAPTERS)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def store_from_url(url: str) -> Store:
    """The store that `DATABASE_URL` names, not yet open.

    `memory:` keeps nothing, `sqlite:///timers.db` is a file below the working directory and
    `sqlite:////var/lib/duetime/timers.db` one with an absolute path. The message of an error
    never repeats more of the URL than its scheme: the rest may hold a password.
    """
    scheme, _, rest = url.partition(":") if _SCHEME.match(url) else ("", "", "")
    scheme = scheme.lower()
    if scheme == "memory":
        from duetime.stores.memory import MemoryStore

        return MemoryStore()
    if scheme == "sqlite":
        from duetime.stores.sqlite import SqliteStore

        return SqliteStore(_sqlite_path(rest))
    if scheme in ADAPTERS:
        return _adapter(ADAPTERS[scheme])(url)
    problem = f"has the unknown scheme {scheme!r}" if scheme else "has no scheme"
    raise ConfigError(f"DATABASE_URL {problem}; known are {', '.join(SCHEMES)}")


def _adapter(adapter: Adapter) -> Callable[[str], Store]:
    try:
        store: Callable[[str], Store] = getattr(import_module(adapter.module), adapter.name)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"DATABASE_URL needs the module {error.name}: pip install 'duetime[{adapter.extra}]'"
        ) from error
    return store


def _sqlite_path(rest: str) -> str:
    path = rest.removeprefix("///")
    # What SQLite calls `:memory:` has no log beside it, and would forget what was accepted.
    if path == rest or path in ("", ":memory:") or "\0" in path:
        raise ConfigError(
            "DATABASE_URL must name a file: sqlite:///relative.db or sqlite:////absolute.db"
        )
    return path
