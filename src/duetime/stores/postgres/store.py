"""The store on PostgreSQL.

Everything that happens often is one statement, sent in one go: a write is its fence, its
removals, its puts and its history together, atomic because it is one statement and durable
when it is answered. Rows go in as one array for each column.

The fence takes the shards' rows FOR SHARE, in the order of their numbers, before anything is
written: a claim, which updates them, waits for the write to end, or has ended before and is
seen. Writes to different shards do not wait for each other.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from asyncpg import Connection

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
from duetime.stores.postgres import statements as sql
from duetime.stores.postgres.connections import FEW_STATEMENTS, MANY_QUERIES, Connections
from duetime.stores.postgres.listing import select
from duetime.stores.postgres.schema import migrate
from duetime.stores.postgres.url import parse
from duetime.stores.sql.chunks import runs, weight_of
from duetime.stores.sql.rows import Row, history_from, history_row, timer_from, timer_row

WRITES_IN_FLIGHT_MAX = 1
WRITE_BYTES_MAX = 32 * 1024 * 1024
DUE_BYTES_MAX = 64 * 1024 * 1024
PAGE_BYTES_MAX = 4 * 1024 * 1024


class PostgresStore:
    """One database, reached by a pool of connections."""

    def __init__(self, url: str) -> None:
        address = parse(url)
        # Lists and counts may take long: what timers wait for has connections of its own.
        lists_max = address.pool_size // 4
        self._lister = Connections(address, size_max=lists_max, settings=MANY_QUERIES)
        self._connections = Connections(
            address, size_max=address.pool_size - lists_max, settings=FEW_STATEMENTS
        )
        self._traits = Traits(
            name="postgresql",
            writes_in_flight_max=WRITES_IN_FLIGHT_MAX,
            shared=True,
            reasons={
                "writes_in_flight_max": (
                    "A second write beside it would take away from what waits to share the next"
                    " commit: with four, there are three times as many commits, and a timer costs"
                    " both sides half as much again."
                ),
            },
        )

    @property
    def traits(self) -> Traits:
        return self._traits

    async def open(self) -> None:
        try:
            await self._connections.open()
            await self._lister.open()
            await self._connections.do(migrate)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        await self._lister.close()
        await self._connections.close()

    async def now(self) -> int:
        return int(await self._value(sql.READ_NOW))

    async def claim(self, shards: Sequence[int], *, owner: str, at: int) -> list[Lease]:
        versions = dict(await self._rows(sql.CLAIM, list(shards), owner, at))
        return [Lease(shard, versions[shard], owner) for shard in shards]

    async def release(self, leases: Sequence[Lease]) -> None:
        await self._rows(
            sql.RELEASE, [lease.shard for lease in leases], [lease.version for lease in leases]
        )

    async def shards(self) -> list[ShardRow]:
        return [ShardRow(*row) for row in await self._rows(sql.READ_SHARDS)]

    async def apply(self, batches: Sequence[Batch]) -> frozenset[int]:
        writes = [_write(piece) for piece in _pieces(batches)]

        async def work(connection: Connection) -> frozenset[int]:
            if len(writes) == 1:
                return _shards(await connection.fetch(*writes[0]))
            async with connection.transaction():
                # What the first fence holds is held until the commit, by each of the next too.
                return frozenset().union(
                    *[_shards(await connection.fetch(*write)) for write in writes]
                )

        return await self._connections.do(work)

    async def due(self, reads: Sequence[DueRead]) -> list[Page]:
        bytes_max = min(PAGE_BYTES_MAX, DUE_BYTES_MAX // max(1, len(reads)))
        rows = await self._rows(
            sql.READ_DUE,
            [read.shard for read in reads],
            [read.after.execute_at for read in reads],
            [read.after.uuid for read in reads],
            [read.until for read in reads],
            [read.limit for read in reads],
            bytes_max,
        )
        found: list[list[Timer]] = [[] for _ in reads]
        for number, *columns in rows:
            found[number - 1].append(timer_from(*columns))
        return [
            Page(timers, more=len(timers) == read.limit or sum(map(weight_of, timers)) >= bytes_max)
            for timers, read in zip(found, reads, strict=True)
        ]

    async def get(self, keys: Sequence[Key]) -> list[Timer | None]:
        rows = await self._rows(
            sql.READ_TIMERS,
            [key.shard for key in keys],
            [key.namespace for key in keys],
            [key.id for key in keys],
        )
        timers = [timer_from(*row) for row in rows]
        found = {Key(timer.shard, timer.namespace, timer.id): timer for timer in timers}
        return [found.get(key) for key in keys]

    async def outcomes(self, keys: Sequence[Key]) -> list[Finished | None]:
        rows = await self._rows(
            sql.READ_OUTCOMES, [key.namespace for key in keys], [key.id for key in keys]
        )
        entries = [history_from(timer_from(*timer), at, status) for *timer, at, status in rows]
        found = {(entry.timer.namespace, entry.timer.id): entry for entry in entries}
        return [found.get((key.namespace, key.id)) for key in keys]

    async def select(self, query: ListQuery) -> Listing:
        return await self._lister.do(lambda connection: select(connection, query))

    async def purge(self, namespace: str, *, before: int, limit: int) -> int:
        return len(await self._rows(sql.PURGE, namespace, before, limit))

    async def documents(self, kind: str) -> list[Document]:
        return [
            Document(kind, name, version, body.encode())
            for kind, name, version, body in await self._rows(sql.READ_DOCUMENTS, kind)
        ]

    async def write_document(
        self, kind: str, name: str, body: bytes, *, expected_version: int
    ) -> bool:
        if expected_version == 0:
            return bool(await self._rows(sql.INSERT_DOCUMENT, kind, name, body.decode()))
        return bool(
            await self._rows(sql.UPDATE_DOCUMENT, kind, name, body.decode(), expected_version)
        )

    async def delete_document(self, kind: str, name: str, *, expected_version: int) -> bool:
        return bool(await self._rows(sql.DELETE_DOCUMENT, kind, name, expected_version))

    async def _rows(self, statement: str, *values: object) -> list[Any]:
        rows: list[Any] = await self._connections.do(
            lambda connection: connection.fetch(statement, *values)
        )
        return rows

    async def _value(self, statement: str) -> Any:
        return await self._connections.do(lambda connection: connection.fetchval(statement))


def _write(batches: Sequence[Batch]) -> tuple[Any, ...]:
    """The statement that writes them, and its values."""
    leases = sorted((batch.lease.shard, batch.lease.version) for batch in batches)
    removes = [
        (timer.shard, timer.execute_at, timer.uuid) for batch in batches for timer in batch.removes
    ]
    puts = [timer_row(timer) for batch in batches for timer in batch.puts]
    finished = [history_row(entry) for batch in batches for entry in batch.finished]
    statement = sql.write(removes=bool(removes), puts=bool(puts), finished=bool(finished))
    return (
        statement,
        *_columns(leases, len(sql.LEASE_COLUMNS)),
        *_columns(removes),
        *_columns(puts),
        *_columns(finished),
    )


def _columns(rows: Sequence[Row], width: int = 0) -> list[Sequence[Any]]:
    """One array for each column; of no rows, `width` empty ones."""
    return list(zip(*rows, strict=True)) if rows else [()] * width


def _pieces(batches: Sequence[Batch]) -> list[Sequence[Batch]]:
    """What goes into one statement each: all of it, unless payloads make it too heavy."""
    if sum(map(weight_of, chain.from_iterable(map(_rows, batches)))) <= WRITE_BYTES_MAX:
        return [batches]
    by_shard = sorted(batches, key=lambda batch: batch.lease.shard)
    return [[part] for batch in by_shard for part in _parts(batch)]


def _parts(batch: Batch) -> Iterator[Batch]:
    yield Batch(batch.lease, [], batch.removes, [])
    for run in runs(_rows(batch), weight_of, WRITE_BYTES_MAX):
        puts = [row for row in run if isinstance(row, Timer)]
        yield Batch(batch.lease, puts, [], [row for row in run if isinstance(row, Finished)])


def _rows(batch: Batch) -> list[Timer | Finished]:
    return [*batch.puts, *batch.finished]


def _shards(rows: Sequence[Any]) -> frozenset[int]:
    return frozenset(shard for (shard,) in rows)
