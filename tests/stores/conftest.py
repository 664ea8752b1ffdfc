from typing import Any

import pytest
from scripts.servers import Mariadb, Postgresql

from tests.servers import Servers, params_of
from tests.stores import mysql_database
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
