"""Oracle, where DUETIME_TEST_ORACLE_URL names one, and a user who may make users."""

import asyncio
import secrets
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from duetime.errors import StoreError
from duetime.stores.oracle.driver import OracleDriver
from duetime.stores.oracle.errors import ERRORS
from duetime.stores.oracle.url import parse
from scripts.servers.base import CannotBeHad
from scripts.servers.named import Named


class Oracle(Named):
    name = scheme = "oracle"

    def fetch(self) -> str:
        ((version,),) = self._ask("SELECT version_full FROM product_component_version")
        return f"Oracle {version}"

    def make(self, name: str) -> str:
        """A user is what comes next to a database; its schema has its name."""
        password = f"p{secrets.token_hex(12)}"
        self._ask(f"CREATE USER {name} IDENTIFIED BY {password}")
        self._ask(f"GRANT CREATE SESSION, CREATE TABLE, UNLIMITED TABLESPACE TO {name}")
        parts = urlsplit(self.url)
        place = parts.netloc.rpartition("@")[2]
        return parts._replace(netloc=f"{name}:{password}@{place}").geturl()

    def drop(self, name: str) -> None:
        self._ask(f"DROP USER {name} CASCADE")

    def _ask(self, statement: str) -> Sequence[Sequence[Any]]:
        driver = OracleDriver(parse(self.url))

        async def ask() -> Sequence[Sequence[Any]]:
            connection = await driver.connect()
            try:
                if statement.startswith("SELECT"):
                    return await connection.fetch(statement, ())
                await connection.execute(statement, ())
                return ()
            finally:
                await connection.close()

        try:
            return asyncio.run(ask())
        except StoreError as error:
            raise CannotBeHad(str(error)) from error
        except ERRORS.caught as error:
            raise CannotBeHad(str(ERRORS.translated(error, driver.name))) from error
