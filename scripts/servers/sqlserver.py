"""SQL Server, where DUETIME_TEST_SQLSERVER_URL names one, and a login that may make databases."""

from typing import Any
from urllib.parse import urlsplit

from duetime.errors import StoreUnavailable
from duetime.stores.sqlserver.errors import errors
from duetime.stores.sqlserver.server import newest
from duetime.stores.sqlserver.url import parse
from scripts.servers.base import CannotBeHad
from scripts.servers.named import Named


class SqlServer(Named):
    name = scheme = "sqlserver"

    def fetch(self) -> str:
        version = "SELECT CAST(SERVERPROPERTY('ProductVersion') AS NVARCHAR(40))"
        return f"SQL Server {self._ask(version)}"

    def make(self, name: str) -> str:
        self._ask(f"CREATE DATABASE {name} COLLATE Latin1_General_CI_AI")
        for setting in ("READ_COMMITTED_SNAPSHOT", "ALLOW_SNAPSHOT_ISOLATION"):
            self._ask(f"ALTER DATABASE {name} SET {setting} ON")
        return urlsplit(self.url)._replace(path=f"/{name}").geturl()

    def drop(self, name: str) -> None:
        self._ask(f"ALTER DATABASE {name} SET SINGLE_USER WITH ROLLBACK IMMEDIATE")
        self._ask(f"DROP DATABASE {name}")

    def _ask(self, statement: str) -> Any:
        address = parse(self.url)
        try:
            import pyodbc
        except ImportError as error:
            raise CannotBeHad("install the Debian package unixodbc") from error
        try:
            driver = newest(pyodbc.drivers(), address.name)
        except StoreUnavailable as error:
            raise CannotBeHad(str(error)) from error
        try:
            connection = pyodbc.connect(address.odbc(driver), autocommit=True, timeout=10)
            try:
                cursor = connection.execute(statement)
                row = cursor.fetchone() if cursor.description else None
                return row and row[0]
            finally:
                connection.close()
        except pyodbc.Error as error:
            mine = errors(pyodbc.Error).translated(error, address.name)
            raise CannotBeHad(str(mine)) from error
