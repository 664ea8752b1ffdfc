"""MySQL, MariaDB and TiDB: one protocol and one driver, a dialect for each."""

from duetime.store import Store
from duetime.stores.mysql.dialects import MARIADB, MYSQL, TIDB, Product
from duetime.stores.mysql.driver import MysqlDriver
from duetime.stores.mysql.url import parse
from duetime.stores.sql.store import SqlStore

__all__ = ["mariadb", "mysql", "tidb"]


def mysql(url: str) -> Store:
    return _store(MYSQL, url)


def mariadb(url: str) -> Store:
    return _store(MARIADB, url)


def tidb(url: str) -> Store:
    return _store(TIDB, url)


def _store(product: Product, url: str) -> Store:
    address = parse(url, product)
    return SqlStore(
        product.dialect,
        MysqlDriver(address, product),
        pool_size=address.pool_size,
        statement_timeout_ms=address.statement_timeout_ms,
    )
