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

    async def pass_by(self, statement: str) -> None:
        if statement.lstrip().startswith(CHANGES):
            self._reached.set()
            await self._released.wait()


@contextmanager
def held(store: SqlStore) -> Iterator[Hold]:
    hold = HoldBeforeWrite()
    pool = store._connections
    do = pool.do

    class HeldSession(Session):
        async def execute(self, statement: str, values: Sequence[object] = ()) -> int:
            await hold.pass_by(statement)
            return await super().execute(statement, values)

    async def do_held(work: Callable[[Session], Awaitable[T]]) -> T:
        async def held_work(session: Session) -> T:
            return await work(HeldSession(session._connection, session._answer_s_max))

        return await do(held_work)

    pool.do = do_held  # type: ignore[method-assign]
    try:
        yield hold
    finally:
        hold.release()
        del pool.do  # type: ignore[method-assign]
