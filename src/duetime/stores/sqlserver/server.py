"""Which servers and which drivers will do."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from duetime.errors import StoreUnavailable
from duetime.stores.sqlserver.errors import NO_DRIVER

VERSION_MIN = 14  # SQL Server 2017.
AZURE = (5, 8)
"""Editions of the engine that are always new, whatever version they say."""
SERVER = """
    SELECT CAST(SERVERPROPERTY('ProductMajorVersion') AS INT),
        CAST(SERVERPROPERTY('EngineEdition') AS INT),
        is_read_committed_snapshot_on, snapshot_isolation_state
    FROM sys.databases WHERE name = DB_NAME()
"""
"""Asks for what a `Server` is made of."""


class Server(NamedTuple):
    """What there is to know of one before it is used."""

    version: int
    edition: int
    reads_versions: int
    has_snapshots: int


def newest(drivers: Sequence[str], database: str) -> str:
    """Of the ODBC drivers that the system has, the one to use."""
    names = [re.fullmatch(r"ODBC Driver (\d+) for SQL Server", name) for name in drivers]
    found = max((name for name in names if name), key=lambda name: int(name[1]), default=None)
    if found is None:
        raise StoreUnavailable(f"{database}: {NO_DRIVER}")
    return found[0]


def refusal(server: Server, database: str) -> str | None:
    """Why a server like this will not do; None if it will."""
    if server.edition not in AZURE and server.version < VERSION_MIN:
        return f"SQL Server version {server.version} is too old: {VERSION_MIN} (2017) is needed"
    needed = [
        setting
        for setting, is_on in (
            ("READ_COMMITTED_SNAPSHOT", server.reads_versions),
            ("ALLOW_SNAPSHOT_ISOLATION", server.has_snapshots),
        )
        if is_on != 1
    ]
    if needed:
        # Without them a read waits for every write, and a count locks what it counts.
        return f"ALTER DATABASE [{database}] SET {', '.join(f'{name} ON' for name in needed)} first"
    return None
