"""Cassandra keyspaces for tests."""

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from scripts.servers import Cassandra

from duetime.store import Store
from duetime.stores.cassandra import CassandraStore
from duetime.stores.cassandra.driver import Change
from duetime.stores.cassandra.statements import GUARD
from duetime.testing.conformance import Hold

WAIT_S = 20


class CassandraDatabase:
    """One keyspace, and any number of ways into it."""

    def __init__(self, server: Cassandra, keyspace: str) -> None:
        self._server = server
        self._keyspace = keyspace
        self.url = server.url_of(keyspace)

    def handle(self) -> Store:
        return CassandraStore(self.url)

    def hold(self, store: Store) -> AbstractContextManager[Hold] | None:
        assert isinstance(store, CassandraStore)
        return _held(store)

    def run(self, *statements: str) -> list[Any]:
        """Do something to it; the rows of the last."""
        with self._server.session() as session:
            session.set_keyspace(self._keyspace)
            for statement in statements:
                rows = session.execute(statement)
            return list(rows)

    def empty(self) -> None:
        """As new, its schema up to date."""

        async def migrate() -> None:
            store = self.handle()
            await store.open()
            await store.close()

        asyncio.run(migrate())
        self.run("TRUNCATE timers", "TRUNCATE documents")


class HoldBeforeWrite:
    """Holds up the one request that is both fence and write, when all it rests on was read."""

    def __init__(self) -> None:
        self._reached = asyncio.Event()
        self._released = asyncio.Event()

    async def reached(self) -> None:
        async with asyncio.timeout(WAIT_S):
            await self._reached.wait()

    def release(self) -> None:
        self._released.set()

    async def pause(self) -> None:
        self._reached.set()
        async with asyncio.timeout(WAIT_S):
            await self._released.wait()


@contextmanager
def _held(store: CassandraStore) -> Iterator[Hold]:
    hold = HoldBeforeWrite()
    change = store._driver.change

    async def held_change(*changes: Change) -> dict[str, Any]:
        if changes[0][0] == GUARD:
            await hold.pause()
        return await change(*changes)

    store._driver.change = held_change  # type: ignore[method-assign]
    try:
        yield hold
    finally:
        hold.release()
        store._driver.change = change  # type: ignore[method-assign]
