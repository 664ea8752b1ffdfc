"""Oracle: its dialect, and its driver in thin mode, which needs nothing of Oracle's here."""

from duetime.store import Store
from duetime.stores.oracle.dialect import ORACLE
from duetime.stores.oracle.driver import OracleDriver
from duetime.stores.oracle.url import parse
from duetime.stores.sql.store import SqlStore

__all__ = ["oracle"]


def oracle(url: str) -> Store:
    address = parse(url)
    return SqlStore(
        ORACLE,
        OracleDriver(address),
        pool_size=address.pool_size,
        statement_timeout_ms=address.statement_timeout_ms,
    )
