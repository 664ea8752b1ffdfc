import pytest

from duetime.testing.conformance import Database, StoreConformance
from tests.stores.mysql_database import MysqlDatabase


class TestMysqlStore(StoreConformance):
    @pytest.fixture
    def database(self, mysql: MysqlDatabase) -> Database:
        return mysql
