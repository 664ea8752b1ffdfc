"""Write the tables of docs/stores.md from the stores' traits; with --check, say if it is stale."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from duetime.store import Traits
from duetime.stores import ADAPTERS, SCHEMES, store_from_url
from duetime.stores.cassandra.driver import VERSION_MIN as CASSANDRA_MIN
from duetime.stores.mongodb.connection import VERSION_MIN as MONGODB_MIN
from duetime.stores.mysql.dialects import MARIADB, MYSQL, TIDB
from duetime.stores.oracle.driver import VERSION_MIN as ORACLE_MIN
from duetime.stores.postgres.connections import VERSION_MIN as POSTGRESQL_MIN
from duetime.stores.sql.store import traits_of
from duetime.stores.sql.url import POOL_SIZE_DEFAULT
from duetime.stores.sqlite.store import SQLITE_VERSION_MIN
from duetime.stores.sqlserver.dialect import SQLSERVER
from duetime.stores.sqlserver.server import VERSION_MIN as SQLSERVER_MIN
from scripts.pages import brought_up_to_date, table
from scripts.servers import SERVERS
from scripts.source_lines import lines_of, source_lines


class Product(NamedTuple):
    """What the table says of a scheme that its store does not."""

    url: str
    """One that its store is made with."""
    server: str
    """Its name, and the oldest that is taken."""


def _dotted(version: Iterable[int]) -> str:
    return ".".join(map(str, version))


PRODUCTS = {
    "memory": Product("memory:", "none"),
    "sqlite": Product("sqlite:///timers.db", f"SQLite {_dotted(SQLITE_VERSION_MIN)}"),
    "postgresql": Product("postgresql://host/database", f"PostgreSQL {POSTGRESQL_MIN}"),
    **{
        product.dialect.name: Product(
            f"{product.dialect.name}://host/database",
            f"{product.title} {_dotted(product.version_min)}",
        )
        for product in (MYSQL, MARIADB, TIDB)
    },
    "oracle": Product("oracle://user:password@host/service", f"Oracle {ORACLE_MIN}"),
    "sqlserver": Product("", f"SQL Server {SQLSERVER_MIN} (2017), Azure SQL"),
    "mongodb": Product("mongodb://host/database", f"MongoDB {MONGODB_MIN}, a replica set"),
    "cassandra": Product("cassandra://host/keyspace", f"Cassandra {_dotted(CASSANDRA_MIN)}"),
    "dynamodb": Product("dynamodb://eu-central-1", "DynamoDB"),
}
SHOWN: dict[str, Callable[[Traits], str]] = {
    "shared": lambda it: "yes" if it.shared else "no",
    "durable": lambda it: "yes" if it.durable else "no",
    "writes_in_flight_max": lambda it: str(it.writes_in_flight_max),
    "atomic_rows_max": lambda it: "all" if it.atomic_rows_max is None else f"{it.atomic_rows_max}",
    "payload_bytes_max": lambda it: _bytes(it.payload_bytes_max),
    "shard_bytes_max": lambda it: _bytes(it.shard_bytes_max),
    "lists_lag": lambda it: "with a lag" if it.lists_lag else "at once",
    "clock_step_ms": lambda it: f"{it.clock_step_ms} ms",
}
BEST = Traits(name="best", shared=True)
"""A trait that is another than this one's is a limit, and needs a reason."""


def main() -> None:
    stores = {scheme: _traits(scheme) for scheme in SCHEMES if scheme not in _aliases()}
    parts = {"stores": overview(stores), "traits": limits(stores), "reasons": reasons(stores)}
    brought_up_to_date("stores.md", parts)


def overview(stores: dict[str, Traits]) -> str:
    shared_lines = lines_of("duetime.stores.sql")
    rows = [
        (
            _schemes(scheme),
            f"`duetime[{ADAPTERS[scheme].extra}]`" if scheme in ADAPTERS else "nothing",
            PRODUCTS[scheme].server,
            SHOWN["shared"](traits),
            _tried(scheme),
            str(source_lines(scheme)),
        )
        for scheme, traits in stores.items()
    ]
    head = ("scheme", "to install", "server, or newer", "shared", "tried", "source lines")
    return table(head, rows) + (
        "\nSource lines are those of the store's own package that are neither blank nor comments;"
        " `mysql`, `mariadb` and\n`tidb` share one. What SQL stores share are"
        f" {shared_lines} more.\n"
    )


def limits(stores: dict[str, Traits]) -> str:
    rows = [
        (f"`{scheme}`", *(show(traits) for show in SHOWN.values()))
        for scheme, traits in stores.items()
    ]
    return table(("scheme", *(f"`{name}`" for name in SHOWN)), rows)


def reasons(stores: dict[str, Traits]) -> str:
    rows = []
    for name, show in SHOWN.items():
        told: dict[str, list[str]] = {}
        for scheme, traits in stores.items():
            is_limit = getattr(traits, name) != getattr(BEST, name)
            if name == "writes_in_flight_max" or is_limit:
                told.setdefault(f"{show(traits)} | {traits.reasons[name]}", []).append(scheme)
            else:
                assert name not in traits.reasons, f"{scheme}: nothing to explain in {name}"
        rows += [
            (f"`{name}`", ", ".join(f"`{scheme}`" for scheme in schemes), because)
            for because, schemes in told.items()
        ]
    return table(("trait", "scheme", "is", "because"), rows)


def _traits(scheme: str) -> Traits:
    if scheme == SQLSERVER.name:  # Its driver needs libraries that only its users have.
        return traits_of(SQLSERVER, pool_size=POOL_SIZE_DEFAULT)
    return store_from_url(PRODUCTS[scheme].url).traits


def _aliases() -> dict[str, str]:
    """Schemes that stand for another one."""
    first: dict[object, str] = {}
    return {
        scheme: known
        for scheme, adapter in ADAPTERS.items()
        if (known := first.setdefault(adapter, scheme)) != scheme
    }


def _schemes(scheme: str) -> str:
    aliases = [alias for alias, known in _aliases().items() if known == scheme]
    return ", ".join(f"`{name}`" for name in (scheme, *aliases))


def _tried(scheme: str) -> str:
    servers = [server for server in SERVERS.values() if server.scheme == scheme]
    if not servers:
        return "run as it is"
    if not any(server.ours for server in servers):
        return "**not run against a server**"
    if not all(server.durable_when_killed for server in servers):
        return "run against its makers' stand-in for tests"
    return "run against a real server"


def _bytes(count: int | None) -> str:
    return "any" if count is None else f"{count:,} bytes"


if __name__ == "__main__":
    main()
