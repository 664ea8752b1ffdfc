"""aioodbc over pyodbc, as the shared SQL store takes a driver."""

from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any

import aioodbc
import pyodbc

from duetime.errors import StoreError
from duetime.stores.sql.connections import CONNECT_TIMEOUT_S, in_turn
from duetime.stores.sqlserver.errors import errors
from duetime.stores.sqlserver.server import SERVER, Server, newest, refusal
from duetime.stores.sqlserver.url import Address

ERRORS = errors(pyodbc.Error)
LOCK_WAIT_MS_MAX = 10_000
IDLE_S_MAX = 600
STATEMENT_BYTES_MAX = 64 * 1024 * 1024
_READ_COMMITTED = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"

pyodbc.pooling = False  # The driver manager's own, which keeps the settings of who came before.


class SqlServerDriver:
    """A way to one database."""

    errors = ERRORS
    idle_s_max = IDLE_S_MAX

    def __init__(self, address: Address) -> None:
        self.name = address.name
        self._address = address

    async def connect(self) -> "SqlServerConnection":
        address = self._address
        executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sqlserver")
        try:
            native = await aioodbc.connect(
                dsn=address.odbc(newest(pyodbc.drivers(), self.name)),
                autocommit=True,
                timeout=CONNECT_TIMEOUT_S,
                executor=executor,
            )
        except BaseException:
            executor.shutdown(wait=False)
            raise
        connection = SqlServerConnection(native, executor)
        try:
            await self._set_up(connection)
        except BaseException:
            connection.abort()
            raise
        return connection

    async def _set_up(self, connection: "SqlServerConnection") -> None:
        timeout_ms = self._address.statement_timeout_ms
        await connection.open_cursor(statement_s_max=timeout_ms // 1000)
        (row,) = await connection.fetch(SERVER, ())
        problem = refusal(Server(*row), self._address.database)
        if problem is not None:
            raise StoreError(f"{self.name}: {problem}")
        lock_wait_ms = min(LOCK_WAIT_MS_MAX, timeout_ms)
        # With XACT_ABORT any error undoes all of its transaction, also one of a time limit.
        settings = f"SET XACT_ABORT ON; SET LOCK_TIMEOUT {lock_wait_ms}; {_READ_COMMITTED}"
        await connection.execute(settings, ())


class SqlServerConnection:
    """One connection, and the thread in which its driver waits."""

    statement_bytes_max = STATEMENT_BYTES_MAX

    def __init__(self, native: aioodbc.Connection, executor: ThreadPoolExecutor) -> None:
        self._native = native
        self._executor = executor
        self._raw: pyodbc.Connection = native._conn
        self._cursor: Any = None
        self._is_waiting = False

    async def open_cursor(self, *, statement_s_max: int) -> None:
        """One cursor for all there is to ask: what it was asked last, it need not prepare."""
        self._raw.timeout = statement_s_max  # Of cursors made from now on.
        self._cursor = await self._native.cursor()

    @property
    def usable(self) -> bool:
        return not self._is_waiting and not self._native.closed

    async def fetch(self, statement: str, values: Sequence[object]) -> Sequence[Sequence[Any]]:
        async with self._asking():
            await self._cursor.execute(statement, values)
            rows: Sequence[Sequence[Any]] = await self._cursor.fetchall()
            return rows

    async def execute(self, statement: str, values: Sequence[object]) -> int:
        rows = in_turn(statement, values)
        async with self._asking():
            if len(rows) == 1:
                await self._cursor.execute(statement, rows[0])
            else:
                await self._cursor.executemany(statement, rows)
            return int(self._cursor.rowcount)

    async def begin(self, *, snapshot: bool) -> None:
        level = "SET TRANSACTION ISOLATION LEVEL SNAPSHOT" if snapshot else _READ_COMMITTED
        await self.execute(f"{level}; BEGIN TRANSACTION", ())

    async def commit(self) -> None:
        await self._end("COMMIT TRANSACTION")

    async def rollback(self) -> None:
        # As a rule the error has undone it already.
        await self._end("IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION")

    async def close(self) -> None:
        await self._native.close()
        self._executor.shutdown(wait=False)

    def abort(self) -> None:
        """The statement under way is told to stop; its thread ends when it has."""
        self._is_waiting = True
        if self._cursor is not None:
            with suppress(pyodbc.Error):
                self._cursor._impl.cancel()
        if not self._native.closed:
            self._native._conn = None
            self._executor.submit(self._raw.close)
        self._executor.shutdown(wait=False)

    async def _end(self, statement: str) -> None:
        """Of a transaction. Where that fails, nobody is to go on in the middle of it."""
        try:
            await self.execute(f"{statement}; {_READ_COMMITTED}", ())
        except BaseException:
            self._is_waiting = True
            raise

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[None]:
        """What is given up in the middle leaves an answer behind that belongs to nobody."""
        self._is_waiting = True
        try:
            yield
        except ERRORS.types as error:
            self._is_waiting = ERRORS.code(error) in ERRORS.gone
            raise
        self._is_waiting = False
