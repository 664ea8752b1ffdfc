"""What a killed server had recorded, read in a way that changes nothing of it."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.databases import SQLITE, Database
from duetime.model import DEFAULT_NAMESPACE
from duetime.store import ListQuery, Store
from duetime.stores import store_from_url


async def recorded(database: Database, *, num_shards: int) -> int:
    """How many finished timers the database holds."""
    async with _opened(database) as store:
        query = ListQuery(
            namespace=DEFAULT_NAMESPACE, num_shards=num_shards, pending=False, limit=1, total=True
        )
        total = (await store.select(query)).total
        assert total is not None
        return total


@asynccontextmanager
async def _opened(database: Database) -> AsyncIterator[Store]:
    folder = database.folder
    copy = folder.with_name(folder.name + "-copy")
    if database.url.startswith(f"{SQLITE}:"):
        # To open a file is to recover it, which is for the restarted server to do. Without the
        # shared-memory file SQLite recovers the copy from the log, as it would after a crash.
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*-shm"))
        store = store_from_url(database.url.replace(str(folder), str(copy)))
    else:
        store = database.store()
    try:
        await store.open()
        yield store
    finally:
        await store.close()
        shutil.rmtree(copy, ignore_errors=True)
