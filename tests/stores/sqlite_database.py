"""SQLite databases for tests."""

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from duetime.store import Store
from duetime.stores.sqlite import SqliteStore
from duetime.stores.sqlite.lock import ProcessLock
from duetime.testing.conformance import Hold

WAIT_S = 10


class SharedSqliteStore(SqliteStore):
    """Without the lock that keeps a second process out, so that the fence stands alone."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._lock = _NoLock(path)
        self.hold: HoldBeforeWrite | None = None

    def _connect_writer(self) -> sqlite3.Connection:
        connection = super()._connect_writer()
        connection.set_trace_callback(self._traced)
        return connection

    def _traced(self, statement: str) -> None:
        if self.hold is not None and statement.lstrip().startswith("INSERT OR REPLACE INTO timers"):
            self.hold.stop()


class _NoLock(ProcessLock):
    def take(self) -> None:
        pass


class HoldBeforeWrite:
    """Stops the writer's thread before its first change."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._released = threading.Event()

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._reached.wait, WAIT_S)

    def release(self) -> None:
        self._released.set()

    def stop(self) -> None:
        self._reached.set()
        assert self._released.wait(WAIT_S)


class SqliteFile:
    """One file, and any number of ways into it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def handle(self) -> Store:
        return SharedSqliteStore(self.path)

    def hold(self, store: Store) -> AbstractContextManager[Hold] | None:
        assert isinstance(store, SharedSqliteStore)
        return _held(store)


@contextmanager
def _held(store: SharedSqliteStore) -> Iterator[Hold]:
    hold = HoldBeforeWrite()
    store.hold = hold
    try:
        yield hold
    finally:
        hold.release()
        store.hold = None
