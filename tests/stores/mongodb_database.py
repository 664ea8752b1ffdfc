"""MongoDB databases for tests."""

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pymongo
from pymongo import MongoClient
from scripts.servers import Mongodb

from duetime.store import Store
from duetime.stores.mongodb import MongoStore
from duetime.testing.conformance import Hold

WAIT_S = 10
COLLECTIONS = ("timers", "history", "documents")
INSERTING = "hangDuringBatchInsert"


class MongoDatabase:
    """One database, and any number of ways into it."""

    def __init__(self, server: Mongodb, name: str) -> None:
        self.url = server.new_url(name)
        self.server = server
        self.name = name
        self._met = 0

    def handle(self) -> Store:
        return MongoStore(self.url)

    def hold(self, store: Store) -> AbstractContextManager[Hold] | None:
        return _held(self)

    def ask(self, command: Any, *, database: str = "admin") -> Any:
        """As one who may do everything."""
        with MongoClient[dict[str, Any]](self.server.root_url) as client, pymongo.timeout(WAIT_S):
            return client[database].command(command)

    def fail(self, failpoint: str, mode: Any, **data: Any) -> None:
        """Set one of the server's own points of failure."""
        command = {"configureFailPoint": failpoint, "mode": mode, "data": data}
        self._met = int(self.ask(command)["count"])

    def wait_for(self, failpoint: str) -> None:
        """Until it is met, since it was set."""
        wait = {"waitForFailPoint": failpoint, "timesEntered": self._met + 1}
        self.ask(wait | {"maxTimeMS": WAIT_S * 1000})

    def empty(self) -> None:
        """As new, its schema up to date."""

        async def migrate() -> None:
            store = self.handle()
            await store.open()
            await store.close()

        self.ask({"killAllSessions": []})  # What a test gave up on would be in the way.
        asyncio.run(migrate())
        for name in COLLECTIONS:
            everything = [{"q": {}, "limit": 0}]
            self.ask({"delete": name, "deletes": everything}, database=self.name)


class HoldBeforeWrite:
    """Has the server stop before the first row that it inserts."""

    def __init__(self, database: MongoDatabase) -> None:
        self._database = database
        database.fail(INSERTING, "alwaysOn", nss=f"{database.name}.timers")

    async def reached(self) -> None:
        await asyncio.to_thread(self._database.wait_for, INSERTING)

    def release(self) -> None:
        self._database.fail(INSERTING, "off")


@contextmanager
def _held(database: MongoDatabase) -> Iterator[Hold]:
    hold = HoldBeforeWrite(database)
    try:
        yield hold
    finally:
        hold.release()
