"""A pool of connections for any driver: bounded, with timeouts, and with another try where
nothing took effect."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeVar

from duetime.errors import StoreUnavailable
from duetime.stores.sql.errors import Errors

T = TypeVar("T")

CONNECT_TIMEOUT_S = 10
ANSWER_GRACE_S = 5  # From when the server should have given up to when we do.
TRIES = 5


class Connection(Protocol):
    """One connection of a driver. A `?` in a statement stands for each value.

    Each statement outside of a transaction is one of its own.
    """

    @property
    def statement_bytes_max(self) -> int:
        """What the server takes at once."""

    @property
    def usable(self) -> bool:
        """Whether it is connected, and nobody waits for an answer on it."""

    async def fetch(self, statement: str, values: Sequence[object]) -> Sequence[Sequence[Any]]:
        """The rows found."""

    async def execute(self, statement: str, values: Sequence[object]) -> int:
        """How many rows it concerned, changed or not. With values for several times its `?`
        it is done as often, in turn."""

    async def begin(self, *, snapshot: bool) -> None:
        """A transaction; its reads see what is committed, or with `snapshot` one moment."""

    async def commit(self) -> None: ...

    async def rollback(self) -> None: ...

    async def close(self) -> None:
        """Say goodbye."""

    def abort(self) -> None:
        """Let go of it at once, whatever is under way."""


def in_turn(statement: str, values: Sequence[object]) -> list[Sequence[object]]:
    """The values for each time that a statement is to be done."""
    size = statement.count("?") or 1
    return [values[start : start + size] for start in range(0, len(values), size)] or [()]


class Driver(Protocol):
    """A way to one database."""

    @property
    def name(self) -> str:
        """For messages: host and database."""

    @property
    def errors(self) -> Errors: ...

    @property
    def idle_s_max(self) -> float:
        """How long a connection may lie unused: less than the server lets it."""

    async def connect(self) -> Connection:
        """A connection set up as the store's statements need it. `StoreError` says why this
        server will not do."""


class Session:
    """A connection while it is used: every wait on it has an end."""

    def __init__(self, connection: Connection, answer_s_max: float) -> None:
        self.statement_bytes_max = connection.statement_bytes_max
        self._connection = connection
        self._answer_s_max = answer_s_max

    async def fetch(self, statement: str, values: Sequence[object] = ()) -> Sequence[Sequence[Any]]:
        async with asyncio.timeout(self._answer_s_max):
            return await self._connection.fetch(statement, values)

    async def execute(self, statement: str, values: Sequence[object] = ()) -> int:
        async with asyncio.timeout(self._answer_s_max):
            return await self._connection.execute(statement, values)

    @asynccontextmanager
    async def transaction(self, *, snapshot: bool = False) -> AsyncIterator[None]:
        """Committed at its end; an error undoes it."""
        async with asyncio.timeout(self._answer_s_max):
            await self._connection.begin(snapshot=snapshot)
        try:
            yield
        except BaseException:
            # Where that fails too, the server does it when the connection is gone.
            if self._connection.usable:
                async with asyncio.timeout(self._answer_s_max):
                    await self._connection.rollback()
            raise
        async with asyncio.timeout(self._answer_s_max):
            await self._connection.commit()


class Connections:
    """A pool. Beyond its size callers wait for a connection, each at most as long as the
    statements before it may take. Nothing is connected to before it is needed."""

    def __init__(self, driver: Driver, *, size_max: int, statement_timeout_ms: int) -> None:
        self._driver = driver
        self._size_max = size_max
        self._answer_s_max = statement_timeout_ms / 1000 + ANSWER_GRACE_S
        self._idle: list[tuple[Connection, float]] = []
        """Each with when it was last used, the latest at the end."""
        self._places = asyncio.Semaphore(0)
        self._is_open = False

    def open(self) -> None:
        self._places = asyncio.Semaphore(self._size_max)
        self._is_open = True

    async def close(self) -> None:
        """Calls under way are finished first; each has an end of its own."""
        if not self._is_open:
            return
        self._is_open = False
        for _ in range(self._size_max):
            await self._places.acquire()
        while self._idle:
            await self._part_from(self._idle.pop()[0])

    async def do(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """Run `work` with a connection; its errors are the store's.

        It is run again if all of it was undone because others were in its way; so it must be
        one statement, or one transaction.
        """
        errors = self._driver.errors
        tries = 0
        while True:
            tries += 1
            try:
                return await self._once(work)
            except errors.caught as error:
                if errors.is_conflict(error) and tries < TRIES:
                    continue
                if errors.spoils_connections(error):
                    self._drop_idle()
                raise errors.translated(error, self._driver.name) from error

    async def fetch(self, statement: str, values: Sequence[object] = ()) -> Sequence[Sequence[Any]]:
        return await self.do(lambda session: session.fetch(statement, values))

    async def execute(self, statement: str, values: Sequence[object] = ()) -> int:
        return await self.do(lambda session: session.execute(statement, values))

    async def unless_there(self, statement: str, values: Sequence[object] = ()) -> bool:
        """Make what the statement makes. False if that is there already."""

        async def work(session: Session) -> bool:
            try:
                await session.execute(statement, values)
            except self._driver.errors.types as error:
                if self._driver.errors.code(error) in self._driver.errors.there_already:
                    return False
                raise
            return True

        return await self.do(work)

    async def fetch_if_table(self, statement: str) -> Sequence[Sequence[Any]]:
        """What the statement finds: nothing where its table is not there."""

        async def work(session: Session) -> Sequence[Sequence[Any]]:
            try:
                return await session.fetch(statement)
            except self._driver.errors.types as error:
                if self._driver.errors.code(error) in self._driver.errors.no_table:
                    return ()
                raise

        return await self.do(work)

    def check_open(self) -> None:
        if not self._is_open:
            raise StoreUnavailable(f"{self._driver.name}: the store is not open")

    async def _once(self, work: Callable[[Session], Awaitable[T]]) -> T:
        self.check_open()
        async with self._places:
            self.check_open()  # It may have been closed while we waited.
            connection = self._idle_one()
            if connection is None:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    connection = await self._driver.connect()
            try:
                result = await work(Session(connection, self._answer_s_max))
            except self._driver.errors.types:
                self._keep(connection)  # It has answered; what it said was an error.
                raise
            except BaseException:
                connection.abort()  # Nobody knows what it is about to answer.
                raise
            self._keep(connection)
            return result

    def _idle_one(self) -> Connection | None:
        oldest = asyncio.get_running_loop().time() - self._driver.idle_s_max
        while self._idle:
            connection, used_at = self._idle.pop()
            if connection.usable and used_at >= oldest:
                return connection
            connection.abort()
        return None

    def _keep(self, connection: Connection) -> None:
        if connection.usable:
            self._idle.append((connection, asyncio.get_running_loop().time()))
        else:
            connection.abort()

    def _drop_idle(self) -> None:
        while self._idle:
            self._idle.pop()[0].abort()

    async def _part_from(self, connection: Connection) -> None:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await connection.close()
        except self._driver.errors.caught:
            connection.abort()
