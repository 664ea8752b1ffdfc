"""What a store's test file supplies, and what every part of the suite begins with."""

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from typing import Protocol

import pytest
import pytest_asyncio

from duetime.store import Store


class Hold(Protocol):
    """An `apply` stopped in the middle."""

    async def reached(self) -> None:
        """Returns when it has passed its fence and stands before its first change."""

    def release(self) -> None:
        """Let it go on."""


class Database(Protocol):
    """A database of its own, empty."""

    def handle(self) -> Store:
        """A store on this database, not yet open. Each call answers another handle, or the
        same one where there can be only one."""

    def hold(self, store: Store) -> AbstractContextManager[Hold] | None:
        """Stop the next `apply` of `store` between its fence and its write.

        None where no other code can run between the two.
        """


class Base:
    """The fixtures of every part."""

    pytestmark = pytest.mark.asyncio

    @pytest.fixture
    def database(self) -> Database:
        raise NotImplementedError("a store's test file supplies its database")

    @pytest_asyncio.fixture
    async def store(self, database: Database) -> AsyncIterator[Store]:
        store = database.handle()
        await store.open()
        yield store
        await store.close()

    @pytest_asyncio.fixture
    async def rival(self, database: Database, store: Store) -> AsyncIterator[Store]:
        """Another way into the database that `store` is on."""
        rival = database.handle()
        await rival.open()
        yield rival
        await rival.close()
