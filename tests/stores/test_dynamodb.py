from typing import Any

import pytest
from scripts.servers import Dynamodb

from duetime.testing.conformance import Database, StoreConformance
from tests.servers import Servers, params_of
from tests.stores.dynamodb_database import new_database


@pytest.fixture(scope="module", params=params_of("dynamodb"))
def server(request: Any, servers: Servers) -> Dynamodb:
    server = servers.get(request.param)
    assert isinstance(server, Dynamodb)
    return server


class TestDynamoStore(StoreConformance):
    @pytest.fixture
    def database(self, server: Dynamodb) -> Database:
        return new_database(server)
