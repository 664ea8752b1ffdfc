import gc
from collections.abc import Iterator
from typing import Any

import pytest
from scripts.servers import CannotBeHad, Cassandra, Dynamodb, Mariadb, Mongodb, Postgresql

from tests.servers import Servers, in_ci, marks_of, params_of
from tests.stores import h2 as h2_process
from tests.stores import mysql_database
from tests.stores.cassandra_database import CassandraDatabase
from tests.stores.dynamodb_database import DynamoDatabase
from tests.stores.dynamodb_database import new_database as new_tables
from tests.stores.h2 import H2
from tests.stores.mongodb_database import MongoDatabase
from tests.stores.mysql_database import MysqlDatabase
from tests.stores.postgres_database import PostgresDatabase, new_database


@pytest.fixture(scope="session", params=params_of("postgresql", "postgresql-18"))
def postgres_server(request: Any, servers: Servers) -> Postgresql:
    server = servers.get(request.param)
    assert isinstance(server, Postgresql)
    return server


@pytest.fixture(scope="module")
def module_database(request: Any, postgres_server: Postgresql) -> PostgresDatabase:
    return new_database(postgres_server, request.module.__name__.rpartition(".")[2])


@pytest.fixture
def postgres(module_database: PostgresDatabase) -> PostgresDatabase:
    """A database without rows, shared by the tests of a module one after the other."""
    module_database.empty()
    return module_database


# A connection that is being made when its client is closed, the driver forgets to close.
_FORGOTTEN = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture(
    scope="session", params=[pytest.param("mongodb", marks=[*marks_of("mongodb"), _FORGOTTEN])]
)
def mongodb_server(request: Any, servers: Servers) -> Mongodb:
    server = servers.get(request.param)
    assert isinstance(server, Mongodb)
    return server


@pytest.fixture(scope="module")
def mongodb_of_module(request: Any, mongodb_server: Mongodb) -> MongoDatabase:
    return MongoDatabase(mongodb_server, request.module.__name__.rpartition(".")[2])


@pytest.fixture
def mongodb(mongodb_of_module: MongoDatabase) -> Iterator[MongoDatabase]:
    """A database without rows, shared by the tests of a module one after the other."""
    mongodb_of_module.empty()
    yield mongodb_of_module
    gc.collect()  # Here, where what was forgotten is forgiven.


@pytest.fixture(scope="session", params=params_of("dynamodb"))
def dynamodb_server(request: Any, servers: Servers) -> Dynamodb:
    server = servers.get(request.param)
    assert isinstance(server, Dynamodb)
    return server


@pytest.fixture
def dynamodb(dynamodb_server: Dynamodb) -> DynamoDatabase:
    """Tables of this test's own, not made yet."""
    return new_tables(dynamodb_server)


@pytest.fixture(scope="session", params=params_of("mysql", "mariadb"))
def mysql_server(request: Any, servers: Servers) -> Mariadb:
    """One of MySQL's family."""
    server = servers.get(request.param)
    assert isinstance(server, Mariadb)
    return server


@pytest.fixture(scope="module")
def mysql_module_database(request: Any, mysql_server: Mariadb) -> MysqlDatabase:
    name = request.module.__name__.rpartition(".")[2]
    return mysql_database.new_database(mysql_server, name)


@pytest.fixture
def mysql(mysql_module_database: MysqlDatabase) -> MysqlDatabase:
    """A database without rows, shared by the tests of a module one after the other."""
    mysql_module_database.empty()
    return mysql_module_database


@pytest.fixture(scope="session", params=params_of("cassandra"))
def cassandra_server(request: Any, servers: Servers) -> Cassandra:
    server = servers.get(request.param)
    assert isinstance(server, Cassandra)
    return server


@pytest.fixture(scope="module")
def keyspace_of_module(request: Any, cassandra_server: Cassandra) -> CassandraDatabase:
    name = request.module.__name__.rpartition(".")[2]
    cassandra_server.new_url(name)
    return CassandraDatabase(cassandra_server, name)


@pytest.fixture
def cassandra(keyspace_of_module: CassandraDatabase) -> CassandraDatabase:
    """A keyspace without rows, shared by the tests of a module one after the other."""
    keyspace_of_module.empty()
    return keyspace_of_module


@pytest.fixture(scope="session")
def h2() -> Iterator[H2]:
    try:
        with h2_process.running() as process:
            yield process
    except CannotBeHad as error:
        (pytest.fail if in_ci() else pytest.skip)(f"H2 cannot be had: {error}")
