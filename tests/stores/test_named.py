"""The suite on the servers that no package has, where somebody names one."""

import asyncio
from contextlib import AbstractContextManager
from typing import Any

import pytest

from duetime.store import Store
from duetime.stores import store_from_url
from duetime.stores.sql.store import SqlStore
from duetime.testing.conformance import Database, Hold, StoreConformance
from tests.servers import Servers, params_of
from tests.stores.sql_database import held


class NamedDatabase:
    """One of our own on that server."""

    def __init__(self, url: str) -> None:
        self._url = url

    def handle(self) -> Store:
        return store_from_url(self._url)

    def hold(self, store: Store) -> AbstractContextManager[Hold] | None:
        assert isinstance(store, SqlStore)
        return held(store)

    def empty(self) -> None:
        async def empty() -> None:
            store = self.handle()
            assert isinstance(store, SqlStore)
            await store.open()
            for table in ("timers", "history", "shards", "documents"):
                await store._connections.execute(f"DELETE FROM {table}")
            await store.close()

        asyncio.run(empty())


@pytest.fixture(scope="module", params=params_of("oracle", "sqlserver"))
def named_database(request: Any, servers: Servers) -> NamedDatabase:
    return NamedDatabase(servers.get(request.param).new_url("conformance"))


class TestNamedStore(StoreConformance):
    @pytest.fixture
    def database(self, named_database: NamedDatabase) -> Database:
        named_database.empty()
        return named_database
