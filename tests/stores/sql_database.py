"""What the tests of all stores on the shared SQL store need: a write held up in the middle."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from duetime.stores.sql.connections import Session
from duetime.stores.sql.store import SqlStore
from duetime.testing.conformance import Hold

T = TypeVar("T")

WAIT_S = 10
CHANGES = ("INSERT INTO timers", "DELETE ", "MERGE INTO timers")


Before = Callable[[Session], Awaitable[None]]


class HoldBeforeWrite:
    """Keeps a store from the next statement that changes timers. The transaction that it stands
    in is real, and so are the locks of its fence."""

    def __init__(self) -> None:
        self._reached = asyncio.Event()
        self._released = asyncio.Event()

    async def reached(self) -> None:
        async with asyncio.timeout(WAIT_S):
            await self._reached.wait()

    def release(self) -> None:
        self._released.set()

    async def pass_by(self, session: Session) -> None:
        self._reached.set()
        await self._released.wait()


@contextmanager
def held(store: SqlStore) -> Iterator[Hold]:
    hold = HoldBeforeWrite()
    with before_changes(store, hold.pass_by):
        try:
            yield hold
        finally:
            hold.release()


@contextmanager
def before_changes(store: SqlStore, before: Before) -> Iterator[None]:
    """Do something on the store's own connection before each statement that changes timers."""
    pool = store._connections
    do = pool.do

    class Watched(Session):
        async def execute(self, statement: str, values: Sequence[object] = ()) -> int:
            if statement.lstrip().startswith(CHANGES):
                await before(Session(self._connection, self._answer_s_max))
            return await super().execute(statement, values)

    async def do_watched(work: Callable[[Session], Awaitable[T]]) -> T:
        async def watched_work(session: Session) -> T:
            return await work(Watched(session._connection, session._answer_s_max))

        return await do(watched_work)

    pool.do = do_watched  # type: ignore[method-assign]
    try:
        yield
    finally:
        del pool.do
