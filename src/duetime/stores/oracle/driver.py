"""oracledb in thin mode, as the shared SQL store takes a driver."""

import re
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import cache
from typing import Any

import oracledb

from duetime.errors import StoreError
from duetime.stores.oracle.errors import ERRORS
from duetime.stores.oracle.url import Address
from duetime.stores.sql.connections import CONNECT_TIMEOUT_S, in_turn
from duetime.stores.sql.listing import numbered

VERSION_MIN = 19
IDLE_S_MAX = 600
STATEMENT_BYTES_MAX = 64 * 1024 * 1024  # It has no bound of its own that we could meet.
FETCH_ROWS = 1_000
_SET_UP = (
    "ALTER SESSION SET ISOLATION_LEVEL = READ COMMITTED",
    "ALTER SESSION SET NLS_COMP = BINARY NLS_SORT = BINARY TIME_ZONE = '+00:00'",
)
_CHARACTER_SET = "SELECT value FROM nls_database_parameters WHERE parameter = 'NLS_CHARACTERSET'"


class OracleDriver:
    """A way to one database."""

    errors = ERRORS
    idle_s_max = IDLE_S_MAX

    def __init__(self, address: Address) -> None:
        self.name = address.name
        self._address = address

    async def connect(self) -> "OracleConnection":
        address = self._address
        native = await oracledb.connect_async(
            user=address.user,
            password=address.password,
            host=address.host,
            port=address.port,
            service_name=address.service,
            protocol="tcp" if address.tls is None else "tcps",
            ssl_context=address.tls,
            ssl_server_dn_match=address.checks_identity,
            tcp_connect_timeout=CONNECT_TIMEOUT_S,
            program="duetime",
        )
        connection = OracleConnection(native)
        try:
            native.call_timeout = address.statement_timeout_ms
            native.autocommit = True
            await self._set_up(connection, native.version)
        except BaseException:
            connection.abort()
            raise
        return connection

    async def _set_up(self, connection: "OracleConnection", version: str) -> None:
        ((character_set,),) = await connection.fetch(_CHARACTER_SET, ())
        problem = refusal(version, character_set)
        if problem is not None:
            raise StoreError(f"{self.name}: {problem}")
        for statement in _SET_UP:
            await connection.execute(statement, ())


def refusal(version: str, character_set: str) -> str | None:
    """Why a server like this will not do; None if it will."""
    found = re.match(r"\d+", version)
    if found is None or int(found[0]) < VERSION_MIN:
        return f"Oracle {version} is too old: {VERSION_MIN} is needed"
    if character_set != "AL32UTF8":
        return f"its character set is {character_set}, and AL32UTF8 is needed"
    return None


class OracleConnection:
    """One connection."""

    statement_bytes_max = STATEMENT_BYTES_MAX

    def __init__(self, native: oracledb.AsyncConnection) -> None:
        self._native = native
        self._is_waiting = False

    @property
    def usable(self) -> bool:
        return not self._is_waiting and self._native.is_healthy()

    async def fetch(self, statement: str, values: Sequence[object]) -> Sequence[Sequence[Any]]:
        async with self._asking():
            with self._cursor(values) as cursor:
                # What is a CLOB comes with its row, instead of one question for each.
                await cursor.execute(_numbered(statement), list(values), fetch_lobs=False)
                rows: Sequence[Sequence[Any]] = await cursor.fetchall()
                return rows

    async def execute(self, statement: str, values: Sequence[object]) -> int:
        rows = in_turn(statement, values)
        async with self._asking():
            with self._cursor(rows[0]) as cursor:
                if len(rows) == 1:
                    await cursor.execute(_numbered(statement), rows[0])
                else:  # As arrays: one message, and one answer.
                    await cursor.executemany(_numbered(statement), rows)
                return int(cursor.rowcount)

    async def begin(self, *, snapshot: bool) -> None:
        self._native.autocommit = False
        if snapshot:
            await self.execute("SET TRANSACTION READ ONLY", ())

    async def commit(self) -> None:
        await self._end(self._native.commit())

    async def rollback(self) -> None:
        await self._end(self._native.rollback())

    async def close(self) -> None:
        await self._native.close()

    def abort(self) -> None:
        self._native.terminate()

    def _cursor(self, values: Sequence[object]) -> oracledb.AsyncCursor:
        cursor = self._native.cursor()
        cursor.arraysize = cursor.prefetchrows = FETCH_ROWS
        if values:
            cursor.setinputsizes(*_input_types(values))
        return cursor

    async def _end(self, answer: Awaitable[None]) -> None:
        """Of a transaction. Where that fails, nobody is to go on in the middle of it."""
        self._is_waiting = True
        await answer
        self._native.autocommit = True
        self._is_waiting = False

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[None]:
        """What is given up in the middle leaves an answer behind that belongs to nobody."""
        self._is_waiting = True
        try:
            yield
        except ERRORS.types:
            self._is_waiting = False
            raise
        self._is_waiting = False


def _input_types(values: Sequence[object]) -> Iterator[oracledb.DbType | None]:
    """A datetime would lose its milliseconds as a DATE; of all else the driver knows best."""
    return (oracledb.DB_TYPE_TIMESTAMP if isinstance(it, datetime) else None for it in values)


@cache
def _numbered(statement: str) -> str:
    return numbered(statement, ":")
