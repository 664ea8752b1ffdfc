"""What a store's timers are kept in while it is measured: a file, or a real server of its own."""

import asyncio
import itertools
import os
import sqlite3
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import Struct
from scripts.servers import SERVERS, Server
from scripts.servers.base import shared_folder

from duetime.store import Store
from duetime.stores import store_from_url

SQLITE = "sqlite"
NAMES = (SQLITE, *SERVERS)

SETTINGS = {"postgresql": {"shared_buffers": "1GB"}}
"""By scheme, what the other job queues' databases were given too. Nothing here is less durable
than a server's defaults."""

REUSED = {"pg_wal"}
"""Folders whose files are written over again: they do not grow with what is stored."""


class Database(Struct, frozen=True):
    """One database, empty when it was made."""

    url: str
    folder: Path
    """Where its files are, or those of the whole server."""
    pid: int | None
    """The server's process."""

    def store(self) -> Store:
        """It as the engine sees it, not yet open."""
        return store_from_url(self.url)

    def disk_bytes(self) -> int:
        return sum(
            (Path(folder) / name).stat().st_blocks * 512
            for folder, _, names in os.walk(self.folder)
            if Path(folder).name not in REUSED
            for name in names
        )


class Databases:
    """Where databases of one kind are made."""

    def __init__(self, name: str, version: str, work: Path, server: Server | None) -> None:
        self.name = name
        self.version = version
        self.server = server
        self._work = work
        self._numbers = itertools.count(1)

    async def new(self) -> Database:
        number = next(self._numbers)
        if self.server is None:
            home = self._work / f"database-{number}"
            home.mkdir()
            return Database(f"sqlite:///{home}/bench.db", home, None)
        # It runs a loop of its own.
        url = await asyncio.to_thread(self.server.new_url, f"bench_{number}")
        return Database(url, self.server.folder, self.server.pid)


@asynccontextmanager
async def databases(name: str, work: Path) -> AsyncIterator[Databases]:
    """Those of a store, on a server that was started for this with its data in a new folder.
    `CannotBeHad` if this machine cannot have it."""
    if name == SQLITE:
        yield Databases(name, f"SQLite {sqlite3.sqlite_version}", work, None)
        return
    kind = SERVERS[name]
    folder = Path(tempfile.mkdtemp(prefix=f"bench-{name}-", dir=shared_folder()))
    server = kind(folder, SETTINGS.get(kind.scheme))
    try:
        version = await asyncio.to_thread(server.fetch)
        await asyncio.to_thread(server.start)
        yield Databases(name, version, work, server)
    finally:
        await asyncio.to_thread(server.delete)
