"""The store on SQLite.

Three threads, each with a connection: *writer* makes every change, *reader* answers the
engine's reads, *lister* the long ones, so that counting a million rows delays no timer.
In WAL mode readers see the last commit and block nobody. Python's sqlite3 takes the GIL
for each statement and each row fetched, so writes are few statements of many rows.

The fence is the write transaction itself: BEGIN IMMEDIATE holds the database's only write
lock from before the version is read until the commit.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from pathlib import Path

from msgspec.json import decode, encode

from duetime.errors import StoreError, StoreUnavailable
from duetime.model import Finished, Lease, Timer
from duetime.store import (
    Batch,
    Document,
    DueRead,
    Key,
    Listing,
    ListQuery,
    Page,
    ShardRow,
    Traits,
)
from duetime.stores.sql.chunks import chunks
from duetime.stores.sql.rows import history_row, timer_row
from duetime.stores.sqlite import statements as sql
from duetime.stores.sqlite.lane import Lane
from duetime.stores.sqlite.listing import select
from duetime.stores.sqlite.lock import ProcessLock
from duetime.stores.sqlite.rows import history_in, timers_in
from duetime.stores.sqlite.schema import migrate

TRAITS = Traits(
    name="sqlite",
    reasons={
        "shared": "Its own locks would let a second process in between two writes.",
        "writes_in_flight_max": "A database has one write lock.",
    },
)
SQLITE_VERSION_MIN = (3, 37, 0)  # The first with strict tables.
WRITER_CACHE_KIB = 16_384
READER_CACHE_KIB = 4_096
PAGE_BYTES = 4_096  # SQLite's own default.
CHECKPOINT_PAGES = 4_096
PAGES_PER_COMMIT = 8
WAL_PAGES_MAX = 16_384  # 64 MiB.
DUE_BYTES_MAX = 4 * 1024 * 1024
BLOCK_TIMERS_MAX = 100  # What one statement reads; with heavy payloads some ten megabytes.
SAME_INSTANT_MIN = 8
BUSY_TIMEOUT_S = 5  # Nobody else writes, but an operator's shell may for a moment.


class SqliteStore:
    """A database in one file, which this process alone may have open."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._lock = ProcessLock(self._path)
        self._writer = Lane("writer", self._path, self._connect_writer, self._disconnect_writer)
        self._reader = Lane("reader", self._path, self._connect_reader)
        self._lister = Lane("lister", self._path, self._connect_reader)
        self._wal_pages = 0

    @property
    def traits(self) -> Traits:
        return TRAITS

    async def open(self) -> None:
        try:
            for lane in (self._writer, self._reader, self._lister):
                await lane.open()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        for lane in (self._lister, self._reader, self._writer):
            await lane.close()

    async def now(self) -> int:
        return await self._reader.do(_read_now)

    async def claim(self, shards: Sequence[int], *, owner: str, at: int) -> list[Lease]:
        def work(connection: sqlite3.Connection) -> list[Lease]:
            with writing(connection):
                return [
                    Lease(
                        shard,
                        connection.execute(sql.CLAIM, (shard, owner, at)).fetchone()[0],
                        owner,
                    )
                    for shard in shards
                ]

        return await self._writer.do(work)

    async def release(self, leases: Sequence[Lease]) -> None:
        def work(connection: sqlite3.Connection) -> None:
            with writing(connection):
                connection.executemany(
                    sql.RELEASE, [(lease.shard, lease.version) for lease in leases]
                )

        await self._writer.do(work)

    async def shards(self) -> list[ShardRow]:
        def work(connection: sqlite3.Connection) -> list[ShardRow]:
            return [ShardRow(*row) for row in connection.execute(sql.READ_SHARDS)]

        return await self._reader.do(work)

    async def apply(self, batches: Sequence[Batch]) -> frozenset[int]:
        def work(connection: sqlite3.Connection) -> frozenset[int]:
            with writing(connection):
                lost, rows = _apply(connection, batches)
            self._checkpoint_at_times(rows)
            return lost

        return await self._writer.do(work)

    async def due(self, reads: Sequence[DueRead]) -> list[Page]:
        def work(connection: sqlite3.Connection) -> list[Page]:
            with reading(connection):
                return [_page(connection, read) for read in reads]

        return await self._reader.do(work)

    async def get(self, keys: Sequence[Key]) -> list[Timer | None]:
        def work(connection: sqlite3.Connection) -> list[Timer | None]:
            found = {}
            with reading(connection):
                for chunk in chunks(keys, sql.CHUNKS):
                    for timer in timers_in(_text(connection, sql.read_timers, chunk)):
                        found[Key(timer.shard, timer.namespace, timer.id)] = timer
            return [found.get(key) for key in keys]

        return await self._reader.do(work)

    async def outcomes(self, keys: Sequence[Key]) -> list[Finished | None]:
        names = [(key.namespace, key.id) for key in keys]

        def work(connection: sqlite3.Connection) -> list[Finished | None]:
            found = {}
            with reading(connection):
                for chunk in chunks(names, sql.CHUNKS):
                    for finished in history_in(_text(connection, sql.read_outcomes, chunk)):
                        found[finished.timer.namespace, finished.timer.id] = finished
            return [found.get(name) for name in names]

        return await self._reader.do(work)

    async def select(self, query: ListQuery) -> Listing:
        def work(connection: sqlite3.Connection) -> Listing:
            with reading(connection):
                return select(connection, query)

        return await self._lister.do(work)

    async def purge(self, namespace: str, *, before: int, limit: int) -> int:
        def work(connection: sqlite3.Connection) -> int:
            with writing(connection):
                return connection.execute(sql.PURGE, (namespace, before, limit)).rowcount

        return await self._writer.do(work)

    async def documents(self, kind: str) -> list[Document]:
        def work(connection: sqlite3.Connection) -> list[Document]:
            return [Document(*row) for row in connection.execute(sql.READ_DOCUMENTS, (kind,))]

        return await self._reader.do(work)

    async def write_document(
        self, kind: str, name: str, body: bytes, *, expected_version: int
    ) -> bool:
        def work(connection: sqlite3.Connection) -> bool:
            with writing(connection):
                if expected_version == 0:
                    values: tuple[object, ...] = (kind, name, body.decode())
                    return connection.execute(sql.INSERT_DOCUMENT, values).rowcount == 1
                values = (body.decode(), kind, name, expected_version)
                return connection.execute(sql.UPDATE_DOCUMENT, values).rowcount == 1

        return await self._writer.do(work)

    async def delete_document(self, kind: str, name: str, *, expected_version: int) -> bool:
        def work(connection: sqlite3.Connection) -> bool:
            with writing(connection):
                values = (kind, name, expected_version)
                return connection.execute(sql.DELETE_DOCUMENT, values).rowcount == 1

        return await self._writer.do(work)

    def _connect_writer(self) -> sqlite3.Connection:
        if sqlite3.sqlite_version_info < SQLITE_VERSION_MIN:
            known = ".".join(map(str, SQLITE_VERSION_MIN))
            raise StoreError(f"SQLite {sqlite3.sqlite_version} is too old: {known} is needed")
        with ExitStack() as undo:
            self._lock.take()
            undo.callback(self._lock.release)
            self._make_private()
            connection = _connect(self._path, cache_kib=WRITER_CACHE_KIB)
            undo.callback(connection.close)
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal":
                raise StoreUnavailable(f"{self._path}: SQLite cannot keep its log beside it")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES_MAX:d}")
            connection.execute(f"PRAGMA journal_size_limit = {WAL_PAGES_MAX * PAGE_BYTES:d}")
            migrate(connection)
            undo.pop_all()
        return connection

    def _make_private(self) -> None:
        """A new file is for its owner's eyes: callbacks' headers hold other people's keys."""
        try:
            if not self._path.exists():
                self._path.touch(mode=0o600)
        except OSError as error:
            raise StoreUnavailable(f"{self._path}: {error.strerror}") from error

    def _disconnect_writer(self, connection: sqlite3.Connection) -> None:
        try:
            with suppress(sqlite3.Error):  # What stays in the log is read from there next time.
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.close()
        finally:
            self._lock.release()

    def _connect_reader(self) -> sqlite3.Connection:
        connection = _connect(self._path, cache_kib=READER_CACHE_KIB)
        connection.execute("PRAGMA query_only = ON")
        return connection

    def _checkpoint_at_times(self, rows: int) -> None:
        """Move the log into the database aside from the writer, which need not wait for it.

        Under a load that never pauses this cannot finish, and the log grows up to
        WAL_PAGES_MAX; from there on the writer does the rest of it itself.
        """
        self._wal_pages += PAGES_PER_COMMIT + rows  # As measured, roughly.
        if self._wal_pages >= CHECKPOINT_PAGES:
            self._wal_pages = 0
            self._lister.post(lambda it: it.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall())


@contextmanager
def writing(connection: sqlite3.Connection) -> Iterator[None]:
    """A write transaction: taken at once, so that nothing read in it can be stale."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:  # Some errors, such as a full disk, have rolled it back.
            connection.execute("ROLLBACK")


@contextmanager
def reading(connection: sqlite3.Connection) -> Iterator[None]:
    """One state of the database for all that is read."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _connect(path: Path, *, cache_kib: int) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_S, isolation_level=None, cached_statements=256
    )
    try:
        connection.execute(f"PRAGMA cache_size = -{cache_kib:d}")
        connection.execute("PRAGMA temp_store = MEMORY")
        # Some builds turn it on: twice the writes.
        connection.execute("PRAGMA secure_delete = OFF")
    except BaseException:
        connection.close()
        raise
    return connection


def _read_now(connection: sqlite3.Connection) -> int:
    (now,) = connection.execute(sql.READ_NOW).fetchone()
    return int(now)


def _apply(connection: sqlite3.Connection, batches: Sequence[Batch]) -> tuple[frozenset[int], int]:
    """The shards that were lost, and how many rows were written for the others."""
    leases = [(batch.lease.shard, batch.lease.version) for batch in batches]
    (lost_text,) = connection.execute(sql.FENCE, (encode(leases).decode(),)).fetchone()
    lost = frozenset(decode(lost_text, type=list[int]))
    held = [batch for batch in batches if batch.lease.shard not in lost]
    puts = [timer_row(timer) for batch in held for timer in batch.puts]
    finished = [history_row(entry) for batch in held for entry in batch.finished]
    removes = [timer for batch in held for timer in batch.removes]
    _remove(connection, removes)
    _many(connection, sql.put, puts)
    _many(connection, sql.record, finished)
    return lost, len(removes) + len(puts) + len(finished)


def _remove(connection: sqlite3.Connection, timers: list[Timer]) -> None:
    """By whole keys; where many share a shard and an instant, at half the cost."""
    by_instant: dict[tuple[int, int], list[bytes]] = {}
    for timer in timers:
        by_instant.setdefault((timer.shard, timer.execute_at), []).append(timer.uuid)
    keys = []
    for (shard, execute_at), uuids in by_instant.items():
        if len(uuids) < SAME_INSTANT_MIN:
            keys += [(shard, execute_at, uuid) for uuid in uuids]
        else:
            for chunk in chunks(uuids, sql.CHUNKS):
                values = (shard, execute_at, *chunk)
                connection.execute(sql.remove_of_instant(len(chunk)), values)
    _many(connection, sql.remove, keys)


def _many(
    connection: sqlite3.Connection,
    statement: Callable[[int], str],
    rows: Sequence[tuple[object, ...]],
) -> None:
    for chunk in chunks(rows, sql.CHUNKS):
        connection.execute(statement(len(chunk)), list(chain.from_iterable(chunk)))


def _page(connection: sqlite3.Connection, read: DueRead) -> Page:
    """The page, block by block, and cut short where it grows heavy."""
    timers: list[Timer] = []
    after = read.after
    room = DUE_BYTES_MAX
    while room > 0 and len(timers) < read.limit:
        asked = min(BLOCK_TIMERS_MAX, read.limit - len(timers))
        values = (read.shard, *after, read.until, asked)
        (text,) = connection.execute(sql.READ_DUE, values).fetchone()
        block = timers_in(text)
        timers += block
        if len(block) < asked:
            return Page(timers, more=False)
        after = timers[-1].cursor
        room -= len(text)
    return Page(timers, more=True)


def _text(
    connection: sqlite3.Connection,
    statement: Callable[[int], str],
    rows: Sequence[tuple[object, ...]],
) -> str:
    values = list(chain.from_iterable(rows))
    (text,) = connection.execute(statement(len(rows)), values).fetchone()
    return str(text)
