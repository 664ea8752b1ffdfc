import pytest

from duetime.testing.conformance import Database, StoreConformance
from tests.stores.cassandra_database import CassandraDatabase


class TestCassandraStore(StoreConformance):
    @pytest.fixture
    def database(self, cassandra: CassandraDatabase) -> Database:
        return cassandra
