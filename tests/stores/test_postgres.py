import pytest

from duetime.testing.conformance import Database, StoreConformance
from tests.stores.postgres_database import PostgresDatabase


class TestPostgresStore(StoreConformance):
    @pytest.fixture
    def database(self, postgres: PostgresDatabase) -> Database:
        return postgres
