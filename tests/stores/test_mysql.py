from typing import Any

import pytest

from duetime.testing.conformance import Database, StoreConformance
from tests.servers import Servers, params_of
from tests.stores.mysql_database import MysqlDatabase, new_database


@pytest.fixture(scope="module", params=params_of("mysql", "mariadb", "tidb"))
def family_database(request: Any, servers: Servers) -> MysqlDatabase:
    return new_database(servers.get(request.param), "conformance")


class TestMysqlStore(StoreConformance):
    @pytest.fixture
    def database(self, family_database: MysqlDatabase) -> Database:
        family_database.empty()
        return family_database
