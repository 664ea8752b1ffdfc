"""Databases of MySQL's family for tests: with every default that could trip the store up."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit

import asyncmy
from scripts.servers import Mariadb, Server

from duetime.store import Store
from duetime.stores import store_from_url
from duetime.stores.sql.connections import Session
from duetime.stores.sql.store import SqlStore
from duetime.testing.conformance import Hold
from tests.stores.sql_database import before_changes, held

T = TypeVar("T")

# Every new connection begins so, unless it says otherwise.
HOSTILE = {
    "time_zone": "'-07:30'",
    "sql_mode": "'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT'",
    "autocommit": "0",
    "character_set_server": "latin1",
    "collation_connection": "latin1_german1_ci",
    "sql_safe_updates": "1",
}


class MysqlDatabase:
    """One database, and any number of ways into it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def handle(self) -> Store:
        return store_from_url(self.url)

    def hold(self, store: Store) -> AbstractContextManager[Hold] | None:
        assert isinstance(store, SqlStore)
        return held(store)

    async def tell(self, *statements: str) -> None:
        await asked(self.url, *statements)

    async def tidy(self) -> None:
        pass

    @asynccontextmanager
    async def raising(self, store: Store, code: int | str, times: int) -> AsyncIterator[None]:
        """It is the server that says it, within the store's own transaction."""
        assert isinstance(store, SqlStore)
        left = [code] * times

        async def raise_error(session: Session) -> None:
            if left:
                text = "SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = ?, MESSAGE_TEXT = 'as asked'"
                await session.execute(text, (left.pop(),))

        with before_changes(store, raise_error):
            yield

    @asynccontextmanager
    async def history_locked(self) -> AsyncIterator[None]:
        locked, done = asyncio.Event(), asyncio.Event()

        async def lock(connection: Any) -> None:
            async with connection.cursor() as cursor:
                await cursor.execute("LOCK TABLES history WRITE")
                locked.set()
                await done.wait()

        locking = asyncio.create_task(with_connection(self.url, lock))
        await locked.wait()
        yield
        done.set()
        await locking

    def empty(self) -> None:
        """As new, its schema up to date."""

        async def empty() -> None:
            store = self.handle()
            await store.open()
            await store.close()
            tables = ("timers", "history", "shards", "documents")
            await asked(self.url, *[f"DELETE FROM {table}" for table in tables])

        asyncio.run(empty())


async def asked(url: str, *statements: str) -> Any:
    """What the last of the statements answers."""

    async def ask(connection: Any) -> Any:
        async with connection.cursor() as cursor:
            for statement in ("SET sql_safe_updates = 0, autocommit = 1", *statements):
                await cursor.execute(statement)
            return await cursor.fetchall()

    return await with_connection(url, ask)


async def with_connection(url: str, work: Callable[[Any], Awaitable[T]]) -> T:
    parts = urlsplit(url)
    connection = await asyncmy.connect(
        host=parts.hostname,
        port=parts.port,
        user=parts.username,
        password=parts.password,
        database=parts.path.removeprefix("/"),
    )
    try:
        return await work(connection)
    finally:
        await connection.ensure_closed()


def new_database(server: Server, name: str) -> MysqlDatabase:
    """Where the server is ours, in a zone of its own, with modes, character sets and isolation
    that are not what the store needs."""
    url = server.new_url(name)
    if not isinstance(server, Mariadb):
        return MysqlDatabase(url)
    settings = [f"SET GLOBAL {variable} = {value}" for variable, value in HOSTILE.items()]
    asyncio.run(
        asked(
            url,
            f"ALTER DATABASE {name} CHARACTER SET latin1 COLLATE latin1_german1_ci",
            "SET GLOBAL TRANSACTION ISOLATION LEVEL SERIALIZABLE",
            *settings,
        )
    )
    return MysqlDatabase(url)
