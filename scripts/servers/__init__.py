"""Real servers to test against, without Docker: `make up STORE=postgresql`, `make down`.

Each listens on loopback only, on a free port, with a folder of its own, and is ended by its
process id. `SERVERS` says which databases there are, `DAEMONS` what else there is too.
"""

from scripts.servers.base import CannotBeHad, Daemon, Server
from scripts.servers.cassandra import Cassandra
from scripts.servers.dynamodb import Dynamodb
from scripts.servers.etcd import Etcd
from scripts.servers.mariadb import Mariadb
from scripts.servers.mongodb import Mongodb
from scripts.servers.mysql import Mysql
from scripts.servers.oracle import Oracle
from scripts.servers.postgresql import Postgresql
from scripts.servers.postgresql_18 import Postgresql18
from scripts.servers.sqlserver import SqlServer
from scripts.servers.tidb import Tidb

SERVERS: dict[str, type[Server]] = {
    server.name: server
    for server in (
        Postgresql,
        Postgresql18,
        Mariadb,
        Mysql,
        Tidb,
        Oracle,
        SqlServer,
        Mongodb,
        Cassandra,
        Dynamodb,
    )
}
DAEMONS: dict[str, type[Daemon]] = {**SERVERS, Etcd.name: Etcd}

__all__ = [
    "DAEMONS",
    "SERVERS",
    "CannotBeHad",
    "Cassandra",
    "Daemon",
    "Dynamodb",
    "Etcd",
    "Mariadb",
    "Mongodb",
    "Postgresql",
    "Server",
]
