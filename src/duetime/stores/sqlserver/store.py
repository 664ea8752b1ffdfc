"""The store on a SQL Server."""

from duetime.errors import ConfigError
from duetime.store import Store
from duetime.stores.sql.store import SqlStore
from duetime.stores.sqlserver.dialect import SQLSERVER
from duetime.stores.sqlserver.url import parse

try:
    from duetime.stores.sqlserver.driver import SqlServerDriver
except ModuleNotFoundError:
    raise
except ImportError as error:  # pyodbc is there, and a library of the system is not.
    raise ConfigError(
        "DATABASE_URL needs unixODBC's libodbc.so.2 and Microsoft's driver:"
        " install the system's packages unixodbc and msodbcsql18"
    ) from error


def sqlserver(url: str) -> Store:
    address = parse(url)
    return SqlStore(
        SQLSERVER,
        SqlServerDriver(address),
        pool_size=address.pool_size,
        statement_timeout_ms=address.statement_timeout_ms,
    )
