import pytest

from duetime.testing.conformance import Database, StoreConformance
from tests.stores.dynamodb_database import DynamoDatabase


class TestDynamoStore(StoreConformance):
    @pytest.fixture
    def database(self, dynamodb: DynamoDatabase) -> Database:
        return dynamodb
