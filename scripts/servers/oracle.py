"""Oracle, where DUETIME_TEST_ORACLE_URL names one, and a user who may make users."""

import secrets
from typing import Any
from urllib.parse import urlsplit

import oracledb

from duetime.stores.oracle.url import parse
from scripts.servers.base import CannotBeHad
from scripts.servers.named import Named


class Oracle(Named):
    name = scheme = "oracle"

    def fetch(self) -> str:
        return f"Oracle {self._ask('SELECT version_full FROM product_component_version')}"

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

    def _ask(self, statement: str) -> Any:
        address = parse(self.url)
        try:
            with (
                oracledb.connect(
                    user=address.user,
                    password=address.password,
                    host=address.host,
                    port=address.port,
                    service_name=address.service,
                    protocol="tcp" if address.tls is None else "tcps",
                    ssl_context=address.tls,
                    ssl_server_dn_match=address.checks_identity,
                ) as connection,
                connection.cursor() as cursor,
            ):
                cursor.execute(statement)
                row = cursor.fetchone() if cursor.description else None
                return row and row[0]
        except oracledb.Error as error:
            raise CannotBeHad(f"{address.name}: {error}") from error
