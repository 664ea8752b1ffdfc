"""The store on any database that speaks SQL, by a dialect and a driver.

A write is one transaction: first the fence, which locks the shards' rows and reads their
versions, then removals, puts and history, each in statements of many rows. A claim, which
locks the same rows, waits for the write to end, or has ended before and is seen. Writes to
different shards do not wait for each other.

Shards are locked in the order of their numbers. What is in each other's way even so, the
database undoes as a whole, and it is done again.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, TypeVar

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
from duetime.stores.sql import statements as sql
from duetime.stores.sql.chunks import chunks, runs, weight_of
from duetime.stores.sql.connections import Connections, Driver, Session
from duetime.stores.sql.dialect import Dialect, Upsert
from duetime.stores.sql.listing import arms_of, rows_of
from duetime.stores.sql.rows import (
    TIMER_COLUMNS,
    Row,
    history_from,
    history_row,
    timer_from,
    timer_row,
)
from duetime.stores.sql.schema import migrate

T = TypeVar("T")

WRITES_IN_FLIGHT_MAX = 4
WRITE_BYTES_MAX = 8 * 1024 * 1024
ESCAPED_MAX = 4  # A text may double when it is quoted; and some is left for the rest.
DUE_BYTES_MAX = 64 * 1024 * 1024
PAGE_BYTES_MAX = 4 * 1024 * 1024
_INSTANTS = (TIMER_COLUMNS.index("timer_execute_at"), TIMER_COLUMNS.index("timer_created_at"))
_NAMES = (TIMER_COLUMNS.index("timer_namespace"), TIMER_COLUMNS.index("timer_id"))


def traits_of(dialect: Dialect, *, pool_size: int) -> Traits:
    return Traits(
        name=dialect.name,
        writes_in_flight_max=min(WRITES_IN_FLIGHT_MAX, pool_size // 2),
        shared=True,
        reasons={
            "writes_in_flight_max": (
                "A write is several round trips, in which the server has time for others; half"
                " of the pool at most."
            ),
        },
    )


class SqlStore:
    """One database, reached by a pool of connections."""

    def __init__(
        self, dialect: Dialect, driver: Driver, *, pool_size: int, statement_timeout_ms: int
    ) -> None:
        self._dialect = dialect
        # Lists and counts may take long: what timers wait for has connections of its own.
        lists_max = pool_size // 4
        self._lister = Connections(
            driver, size_max=lists_max, statement_timeout_ms=statement_timeout_ms
        )
        self._connections = Connections(
            driver, size_max=pool_size - lists_max, statement_timeout_ms=statement_timeout_ms
        )
        self._traits = traits_of(dialect, pool_size=pool_size)
        self._sizes = _sizes(dialect.rows_max)
        self._read_sizes = _sizes(dialect.reads_max)

    @property
    def traits(self) -> Traits:
        return self._traits

    async def open(self) -> None:
        self._connections.open()
        self._lister.open()
        try:
            await migrate(self._connections, self._dialect)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        await self._lister.close()
        await self._connections.close()

    async def now(self) -> int:
        ((now,),) = await self._connections.fetch(self._dialect.read_now)
        return self._dialect.from_instant(now)

    async def claim(self, shards: Sequence[int], *, owner: str, at: int) -> list[Lease]:
        numbers = sorted(set(shards))
        claimed_at = self._dialect.lists.instant(at)
        name = self._dialect.lists.name(owner)
        rows = [(*self._shard_key(shard), 1, name, claimed_at) for shard in numbers]

        async def work(session: Session) -> dict[int, int]:
            async with session.transaction():
                await self._upsert(session, sql.NUMBER, [(shard,) for shard in numbers])
                await self._upsert(session, sql.CLAIM, rows)
                return await self._versions(session, numbers)

        versions = await self._connections.do(work)
        return [Lease(shard, versions[shard], owner) for shard in shards]

    async def release(self, leases: Sequence[Lease]) -> None:
        rows = [(*self._shard_key(lease.shard), lease.version) for lease in leases]

        async def work(session: Session) -> None:
            async with session.transaction():
                for chunk in chunks(sorted(rows), self._sizes):
                    await session.execute(sql.release(self._dialect, len(chunk)), _flat(chunk))

        await self._connections.do(work)

    async def shards(self) -> list[ShardRow]:
        from_instant, from_name = self._dialect.from_instant, self._dialect.from_name
        return [
            ShardRow(shard, version, owner and from_name(owner), from_instant(claimed_at))
            for shard, version, owner, claimed_at in await self._connections.fetch(
                sql.READ_SHARDS, self._shard_key(0)[1:]
            )
        ]

    async def apply(self, batches: Sequence[Batch]) -> frozenset[int]:
        wanted = {batch.lease.shard: batch.lease.version for batch in batches}
        shards = sorted(wanted)

        async def work(session: Session) -> frozenset[int]:
            async with session.transaction():
                found = await self._versions(session, shards)
                lost = frozenset(
                    shard for shard, version in wanted.items() if found.get(shard) != version
                )
                await self._write(session, [it for it in batches if it.lease.shard not in lost])
                return lost

        return await self._connections.do(work)

    async def due(self, reads: Sequence[DueRead]) -> list[Page]:
        bytes_max = min(PAGE_BYTES_MAX, DUE_BYTES_MAX // max(1, len(reads)))
        instant = self._dialect.lists.instant
        rows = []
        for position, read in enumerate(reads):
            after, uuid = instant(read.after.execute_at), read.after.uuid
            place = (position, read.shard, instant(read.until), after, after, uuid)
            rows.append((*place, *self._first(read.limit), bytes_max))
        found: list[list[Timer]] = [[] for _ in reads]
        for position, *columns in await self._each(sql.read_due, rows, self._read_sizes):
            found[position].append(self._timer(columns))
        for timers in found:
            timers.sort(key=_cursor)  # A union keeps no order of its parts by right.
        return [
            Page(timers, more=len(timers) == read.limit or _weight(timers) >= bytes_max)
            for timers, read in zip(found, reads, strict=True)
        ]

    async def get(self, keys: Sequence[Key]) -> list[Timer | None]:
        name = self._dialect.lists.name
        rows = [(key.shard, sql.TIMER, name(key.namespace), name(key.id)) for key in keys]
        timers = [self._timer(row) for row in await self._each(sql.read_timers, rows, self._sizes)]
        found = {Key(timer.shard, timer.namespace, timer.id): timer for timer in timers}
        return [found.get(key) for key in keys]

    async def outcomes(self, keys: Sequence[Key]) -> list[Finished | None]:
        name = self._dialect.lists.name
        rows = [(name(key.namespace), name(key.id), *self._first(1)) for key in keys]
        entries = [
            self._finished(row)
            for row in await self._each(sql.read_outcomes, rows, self._read_sizes)
        ]
        found = {(entry.timer.namespace, entry.timer.id): entry for entry in entries}
        return [found.get((key.namespace, key.id)) for key in keys]

    async def select(self, query: ListQuery) -> Listing:
        arms = arms_of(query, self._dialect.lists)
        if not arms:
            self._lister.check_open()
            return Listing([], 0 if query.total else None)

        async def page(session: Session) -> list[Timer | Finished]:
            rows = await session.fetch(*rows_of(arms, query, self._dialect.lists))
            return [self._entry(row) for row in rows]

        async def work(session: Session) -> Listing:
            if not query.total:
                return Listing(await page(session), None)
            total = 0
            async with session.transaction(snapshot=True):
                for arm in arms:
                    ((count,),) = await session.fetch(*arm.count())
                    total += count
                return Listing(await page(session), total)

        return await self._lister.do(work)

    async def purge(self, namespace: str, *, before: int, limit: int) -> int:
        lists = self._dialect.lists
        values = (lists.name(namespace), lists.instant(before), limit)
        return await self._connections.execute(self._dialect.purge, values)

    async def documents(self, kind: str) -> list[Document]:
        rows = await self._connections.fetch(sql.READ_DOCUMENTS, self._names(kind))
        from_name = self._dialect.from_name
        return [
            Document(kind, from_name(name), version, body.encode()) for name, version, body in rows
        ]

    async def write_document(
        self, kind: str, name: str, body: bytes, *, expected_version: int
    ) -> bool:
        if expected_version == 0:
            values: Row = (*self._names(kind, name), body.decode())
            return await self._connections.unless_there(sql.INSERT_DOCUMENT, values)
        values = (body.decode(), *self._names(kind, name), expected_version)
        return await self._connections.execute(sql.UPDATE_DOCUMENT, values) == 1

    async def delete_document(self, kind: str, name: str, *, expected_version: int) -> bool:
        values = (*self._names(kind, name), expected_version)
        return await self._connections.execute(sql.DELETE_DOCUMENT, values) == 1

    async def _versions(self, session: Session, shards: Sequence[int]) -> dict[int, int]:
        """Of those that were ever claimed, kept as they are until the commit."""
        keys = [self._shard_key(shard) for shard in shards]
        found: dict[int, int] = {}
        for chunk in chunks(keys, self._sizes):
            statement = sql.lock_shards(self._dialect, len(chunk))
            rows = await session.fetch(statement, _flat(chunk))
            found.update({row[0]: row[1] for row in rows})
        return found

    async def _write(self, session: Session, batches: Sequence[Batch]) -> None:
        instant = self._dialect.lists.instant
        removes = sorted(
            (timer.shard, sql.TIMER, instant(timer.execute_at), timer.uuid)
            for batch in batches
            for timer in batch.removes
        )
        for chunk in chunks(removes, self._sizes):
            await session.execute(sql.remove(self._dialect, len(chunk)), _flat(chunk))
        bytes_max = min(WRITE_BYTES_MAX, session.statement_bytes_max // ESCAPED_MAX)
        for puts in runs([put for batch in batches for put in batch.puts], weight_of, bytes_max):
            await self._upsert(session, sql.PUT, [self._put_row(timer) for timer in puts])
        entries = [entry for batch in batches for entry in batch.finished]
        for run in runs(entries, weight_of, bytes_max):
            await self._upsert(session, sql.RECORD, [self._history_row(entry) for entry in run])

    async def _upsert(self, session: Session, what: Upsert, rows: Sequence[Row]) -> None:
        for chunk in chunks(rows, self._sizes):
            for step in sql.upsert(self._dialect, what, len(chunk)):
                await session.execute(step.statement, _flat(map(step.values, chunk)))

    async def _each(
        self,
        statement: Callable[[Dialect, int], str],
        rows: Sequence[Row],
        sizes: Sequence[int],
    ) -> list[Sequence[Any]]:
        """What the statement finds for each of the rows of values."""

        async def work(session: Session) -> list[Sequence[Any]]:
            found: list[Sequence[Any]] = []
            for chunk in chunks(rows, sizes):
                found += await session.fetch(statement(self._dialect, len(chunk)), _flat(chunk))
            return found

        return await self._connections.do(work)

    def _first(self, limit: int) -> Sequence[Any]:
        return self._dialect.lists.page(limit, 0).values

    def _names(self, *names: str) -> Row:
        return tuple(map(self._dialect.lists.name, names))

    def _shard_key(self, shard: int) -> Row:
        row_type, execute_at, uuid = sql.ZERO_KEY
        return (shard, row_type, self._dialect.lists.instant(execute_at), uuid)

    def _put_row(self, timer: Timer) -> Row:
        return (*self._native(timer_row(timer)), sql.TIMER)

    def _history_row(self, entry: Finished) -> Row:
        *timer, at, status = history_row(entry)
        return (*self._native(timer), self._dialect.lists.instant(at), status)

    def _native(self, row: Sequence[Any]) -> Row:
        """The values of TIMER_COLUMNS, as the driver takes them."""
        values = list(row)
        for position in _INSTANTS:
            values[position] = self._dialect.lists.instant(values[position])
        for position in _NAMES:
            values[position] = self._dialect.lists.name(values[position])
        return tuple(values)

    def _timer(self, row: Sequence[Any]) -> Timer:
        """The timer of the values of TIMER_COLUMNS, as the driver hands them over."""
        values = list(row)
        for position in _INSTANTS:
            values[position] = self._dialect.from_instant(values[position])
        for position in _NAMES:
            values[position] = self._dialect.from_name(values[position])
        return timer_from(*values)

    def _finished(self, row: Sequence[Any]) -> Finished:
        *timer, at, status = row
        return history_from(self._timer(timer), self._dialect.from_instant(at), status)

    def _entry(self, row: Sequence[Any]) -> Timer | Finished:
        _, _, at, status, *columns = row
        timer = self._timer(columns)
        if status is None:
            return timer
        return history_from(timer, self._dialect.from_instant(at), status)


def _sizes(size_max: int) -> tuple[int, ...]:
    """Few, so that the statements stay the same ones; and none that leaves many for the rest."""
    sizes = [size_max]
    while sizes[-1] > 16:
        sizes.append(sizes[-1] // 4)
    return (*sizes, *range(sizes[-1] - 1, 0, -1))


def _flat(rows: Iterable[Iterable[Any]]) -> list[Any]:
    return list(chain.from_iterable(rows))


def _cursor(timer: Timer) -> tuple[int, bytes]:
    return (timer.execute_at, timer.uuid)


def _weight(timers: Sequence[Timer]) -> int:
    return sum(map(weight_of, timers))
