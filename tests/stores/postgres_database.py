"""PostgreSQL databases for tests: with every default that could trip the store up."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, TypeVar

import asyncpg
from scripts.servers import Postgresql

from duetime.store import Store
from duetime.stores.postgres import PostgresStore
from duetime.stores.postgres.errors import DRIVER_ERRORS
from duetime.testing.conformance import Hold

T = TypeVar("T")

WAIT_S = 10
POLL_S = 0.005
HOLD = 1
HOLDING = f"""
    CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_advisory_xact_lock({HOLD});
        RETURN NEW;
    END $$;
    CREATE TRIGGER hold BEFORE INSERT ON timers
    FOR EACH ROW WHEN (NEW.row_type = 2) EXECUTE FUNCTION hold();
"""
HOLDING_NO_MORE = "DROP TRIGGER IF EXISTS hold ON timers; DROP FUNCTION IF EXISTS hold"


class PostgresDatabase:
    """One database, and any number of ways into it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def handle(self) -> Store:
        return PostgresStore(self.url)

    def hold(self, store: Store) -> AbstractContextManager[Hold] | None:
        return _held(self.url)

    def run(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Do something to it from outside a running loop."""
        return asyncio.run(asked(self.url, work))

    def empty(self) -> None:
        """As new, its schema up to date."""

        async def delete(connection: Any) -> None:
            await connection.execute("DELETE FROM timers; DELETE FROM history")
            await connection.execute("DELETE FROM documents")

        async def migrate() -> None:
            store = self.handle()
            await store.open()
            await store.close()

        asyncio.run(migrate())
        self.run(delete)


async def asked(url: str, work: Callable[[Any], Awaitable[T]]) -> T:
    connection = await asyncpg.connect(url)
    try:
        return await work(connection)
    finally:
        await connection.close()


def new_database(server: Postgresql, name: str) -> PostgresDatabase:
    """In a zone of its own, sorted as people sort where the server can, and with a default
    isolation level and a durability that are not what the store needs."""

    async def create(connection: Any) -> None:
        with_icu = "SELECT EXISTS (SELECT FROM pg_collation WHERE collname = 'en-US-x-icu')"
        as_people_sort = ""
        if await connection.fetchval(with_icu):  # Not every server was built so.
            as_people_sort = "LOCALE_PROVIDER icu ICU_LOCALE 'en-US' LOCALE 'C'"
        await connection.execute(f"CREATE DATABASE {name} TEMPLATE template0 {as_people_sort}")
        for setting in (
            "timezone = 'America/Los_Angeles'",
            "datestyle = 'SQL, DMY'",
            "default_transaction_isolation = 'repeatable read'",
            "synchronous_commit = off",
        ):
            await connection.execute(f"ALTER DATABASE {name} SET {setting}")

    asyncio.run(asked(server.url, create))
    return PostgresDatabase(server.url_of(name))


class HoldBeforeWrite:
    """Keeps a lock that the first row to be written waits for."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._held = threading.Event()
        self._reached = threading.Event()
        self._released = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._hold()))
        self._thread.start()
        assert self._held.wait(WAIT_S)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._reached.wait, WAIT_S)

    def release(self) -> None:
        self._released.set()
        self._thread.join()

    async def _hold(self) -> None:
        # A test may stop the server meanwhile.
        with suppress(*DRIVER_ERRORS):
            await asked(self._url, self._hold_with)

    async def _hold_with(self, connection: Any) -> None:
        await connection.execute(HOLDING)
        await connection.execute("SELECT pg_advisory_lock($1)", HOLD)
        self._held.set()
        while not self._released.is_set():
            if await connection.fetchval(
                "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)"
            ):
                self._reached.set()
            await asyncio.sleep(POLL_S)
        await connection.execute("SELECT pg_advisory_unlock($1)", HOLD)
        await connection.execute(HOLDING_NO_MORE)


@contextmanager
def _held(url: str) -> Iterator[Hold]:
    hold = HoldBeforeWrite(url)
    try:
        yield hold
    finally:
        hold.release()
