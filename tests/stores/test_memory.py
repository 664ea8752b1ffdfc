from contextlib import AbstractContextManager

import pytest

from duetime.store import Store
from duetime.stores.memory import MemoryStore
from duetime.testing.conformance import Database, Hold, StoreConformance


class InMemory:
    """One store is the database: there is no second way in, and nothing runs between its
    fence and its write."""

    def __init__(self) -> None:
        self._store = MemoryStore()

    def handle(self) -> Store:
        return self._store

    def hold(self, store: Store) -> AbstractContextManager[Hold] | None:
        return None


class TestMemoryStore(StoreConformance):
    @pytest.fixture
    def database(self) -> Database:
        return InMemory()
