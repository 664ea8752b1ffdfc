import pytest

from duetime.testing.conformance import Database, StoreConformance
from tests.stores.mongodb_database import MongoDatabase


class TestMongoStore(StoreConformance):
    @pytest.fixture
    def database(self, mongodb: MongoDatabase) -> Database:
        return mongodb
