"""The databases that Duetime keeps its timers in. An adapter is imported only when used."""

import re

from duetime.errors import ConfigError
from duetime.store import Store

SCHEMES = ("memory", "sqlite", "postgresql", "postgres")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def store_from_url(url: str) -> Store:
    """The store that `DATABASE_URL` names, not yet open.

    `memory:` keeps nothing, `sqlite:///timers.db` is a file below the working directory and
    `sqlite:////var/lib/duetime/timers.db` one with an absolute path. The message of an error
    never repeats more of the URL than its scheme: the rest may hold a password. What a
    `postgresql://user:password@host:5432/database` may look like says its own module.
    """
    scheme, _, rest = url.partition(":") if _SCHEME.match(url) else ("", "", "")
    match scheme.lower():
        case "memory":
            from duetime.stores.memory import MemoryStore

            return MemoryStore()
        case "sqlite":
            from duetime.stores.sqlite import SqliteStore

            return SqliteStore(_sqlite_path(rest))
        case "postgresql" | "postgres":
            try:
                from duetime.stores.postgres import PostgresStore
            except ModuleNotFoundError as error:
                raise _driver_missing("postgresql", error) from error

            return PostgresStore(url)
        case "":
            problem = "has no scheme"
        case unknown:
            problem = f"has the unknown scheme {unknown!r}"
    raise ConfigError(f"DATABASE_URL {problem}; known are {', '.join(SCHEMES)}")


def _driver_missing(extra: str, error: ModuleNotFoundError) -> ConfigError:
    return ConfigError(
        f"DATABASE_URL needs the module {error.name}: pip install 'duetime[{extra}]'"
    )


def _sqlite_path(rest: str) -> str:
    path = rest.removeprefix("///")
    # What SQLite calls `:memory:` has no log beside it, and would forget what was accepted.
    if path == rest or path in ("", ":memory:") or "\0" in path:
        raise ConfigError(
            "DATABASE_URL must name a file: sqlite:///relative.db or sqlite:////absolute.db"
        )
    return path
