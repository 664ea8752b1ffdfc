"""The store on Cassandra.

A shard is a partition, and every write to it is one conditional batch: it changes the mark of
the last write in the shard's row, and takes effect only if the shard's version and that mark
are what they were when the rows were read that the write rests on. So a newer claim and any
other write make it fail whole; sent twice, it happens once; and of a write that was not
answered, the mark tells whether it took effect, and that it can no more once another has.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from itertools import count
from secrets import token_bytes
from typing import Any, NamedTuple

from duetime.errors import StoreUnavailable
from duetime.model import CURSOR_MIN, INSTANT_MAX, Cursor, Finished, Lease, Timer
from duetime.routing import timer_uuid
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
from duetime.stores.cassandra import statements as cql
from duetime.stores.cassandra.driver import Change, Driver, all_of
from duetime.stores.cassandra.listing import entry_of, select
from duetime.stores.cassandra.plan import (
    PART_TIMERS_MAX,
    Layout,
    Places,
    Plan,
    bytes_of,
    decode_layout,
    encode_layout,
    history_place,
    parts_of,
    successor,
    uuids_of,
)
from duetime.stores.cassandra.schema import migrate
from duetime.stores.cassandra.url import parse
from duetime.stores.sql.rows import timer_from

FIRST_ROWS = 100  # Of a page, before it is known how heavy its rows are.
PAGE_BYTES_MAX = 4 * 1024 * 1024
WALKS_MAX = 4
RUN_MS = 60_000
BEYOND = Cursor(INSTANT_MAX + 1, b"")
TRIES = 5
TRAITS = Traits(
    name="cassandra",
    writes_in_flight_max=8,
    shared=True,
    atomic_rows_max=PART_TIMERS_MAX,
    reasons={
        "writes_in_flight_max": (
            "A write waits for rounds of Paxos; those of other shards are on other partitions."
        ),
        "atomic_rows_max": (
            "What is written at once is one conditional batch, a single message: one of more than"
            " 500 timers, or 1 MiB of payloads, is several."
        ),
    },
)


Place = tuple[int, int, bytes]
"""Of a row in its shard: its type, instant and uuid."""


class _State(NamedTuple):
    """A shard's row, as far as writes rest on it."""

    version: int
    write: bytes
    layout: Layout


class CassandraStore:
    """One keyspace."""

    def __init__(self, url: str) -> None:
        address = parse(url)
        self._keyspace = address.keyspace
        self._driver = Driver(address)
        # Writes to one shard would only make each other fail.
        self._turns: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._states: dict[int, _State] = {}  # After our last write; others may have written.
        self._handle, self._writes = token_bytes(8), count()
        # Lists may take long: what timers wait for is to have room beside them.
        self._walks = asyncio.Semaphore(WALKS_MAX)

    @property
    def traits(self) -> Traits:
        return TRAITS

    async def open(self) -> None:
        await self._driver.open()
        try:
            await migrate(self._driver, self._keyspace)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        await self._driver.close()

    async def now(self) -> int:
        async with self._driver.call():
            ((now,),) = await self._driver.rows(cql.READ_NOW)
            return int(now)

    # -- shards -------------------------------------------------------------------------

    async def claim(self, shards: Sequence[int], *, owner: str, at: int) -> list[Lease]:
        async with self._driver.call():
            return await all_of(self._claim(shard, owner, at) for shard in shards)

    async def _claim(self, shard: int, owner: str, at: int) -> Lease:
        async with self._turns[shard]:
            tries = failures = 0
            while True:
                state = await self._read(shard, serial=tries > 0)
                tries += 1
                version = 1 if state is None else state.version + 1
                claim: Change = (cql.CLAIM_FIRST, (shard, owner, at))
                if state is not None:
                    claim = (cql.CLAIM, (version, owner, at, shard, state.version))
                try:
                    row = await self._driver.change(claim)
                except StoreUnavailable:
                    failures += 1  # Perhaps we have it now. The next version will surely be ours.
                    if failures == TRIES:
                        raise
                else:
                    if row["[applied]"]:
                        return Lease(shard, version, owner)

    async def release(self, leases: Sequence[Lease]) -> None:
        async with self._driver.call():
            await all_of(
                self._driver.change((cql.RELEASE, (lease.shard, lease.version))) for lease in leases
            )

    async def shards(self) -> list[ShardRow]:
        async with self._driver.call():
            return sorted(ShardRow(*row) for row in await self._driver.rows(cql.READ_SHARDS))

    # -- writing ------------------------------------------------------------------------

    async def apply(self, batches: Sequence[Batch]) -> frozenset[int]:
        async with self._driver.call():
            held = await all_of(self._apply(batch) for batch in batches)
            shards = [batch.lease.shard for batch in batches]
            return frozenset(
                shard for shard, is_held in zip(shards, held, strict=True) if not is_held
            )

    async def _apply(self, batch: Batch) -> bool:
        """Whether the lease held. A batch that is too much for one write is several, each whole
        for its timers; a lease that is lost between them leaves it unknown what was written."""
        shard, version = batch.lease.shard, batch.lease.version
        async with self._turns[shard]:
            for number, part in enumerate(parts_of(batch)):
                if not await self._write(shard, version, partial(self._plan, part)):
                    if number:
                        raise StoreUnavailable(f"{self._driver.name}: shard {shard} was claimed")
                    return False
        return True

    async def _plan(self, batch: Batch, layout: Layout) -> Plan:
        plan = Plan(
            batch.lease.shard, layout, await self._places(batch.lease.shard, uuids_of(batch))
        )
        plan.apply(batch)
        return plan

    async def purge(self, namespace: str, *, before: int, limit: int) -> int:
        purged = 0
        async with self._driver.call():
            for shard, *_ in await self._driver.rows(cql.READ_SHARDS):
                part = count = PART_TIMERS_MAX
                while count == part and purged < limit:
                    part = min(PART_TIMERS_MAX, limit - purged)
                    count = await self._purge(shard, namespace, before, part)
                    purged += count
        return purged

    async def _purge(self, shard: int, namespace: str, before: int, limit: int) -> int:
        rows: list[Any] = []

        async def planned(layout: Layout) -> Plan | None:
            kind = layout.namespaces.get(namespace)
            if kind is None:
                return None
            start = layout.floor(kind + 1)
            rows[:] = await self._driver.rows(
                cql.READ_PLACES, shard, kind + 1, *start, before + 1, b"", limit
            )
            if not rows:
                return None
            uuids = {uuid[:16] for _, uuid in rows}
            plan = Plan(shard, layout, await self._places(shard, list(uuids)))
            plan.purge(kind, [Cursor(*row) for row in rows])
            return plan

        async with self._turns[shard]:
            await self._write(shard, None, planned)
        return len(rows)

    async def _write(
        self, shard: int, version: int | None, planned: Callable[[Layout], Awaitable[Plan | None]]
    ) -> bool:
        """Write what `planned` makes of the shard as it is, if that is anything. False if the
        shard's version is not this one; None stands for any."""
        for _ in range(TRIES):
            state = self._states.get(shard)
            if state is None or version not in (None, state.version):
                state = await self._read(shard)
            if state is None or version not in (None, state.version):
                return False
            plan = await planned(state.layout)
            if plan is None:
                return True
            heads = {
                kind: await self._head(shard, kind, state.layout.floor(kind), gone)
                for kind, gone in plan.gone.items()
            }
            layout, changes = plan.changes(heads)
            after = _State(state.version, self._mark(), layout)
            # Until we know better, we do not know.
            self._states.pop(shard, None)
            if await self._replace(shard, state, after, changes):
                self._states[shard] = after
                return True
        raise StoreUnavailable(f"{self._driver.name}: others write to shard {shard} all the time")

    async def _replace(
        self, shard: int, state: _State, after: _State, changes: Sequence[Change]
    ) -> bool:
        """Make the changes if the shard still is in that state; whether it was.

        What was not answered may have happened, or may yet. It is looked up, and sent again if
        nothing has happened: it can happen once only, however often it arrives. If something
        else has, it stays unknown.
        """
        guard = (cql.GUARD, (after.write, encode_layout(after.layout).decode(), shard, *state[:2]))
        unanswered: StoreUnavailable | None = None
        for _ in range(TRIES):
            try:
                row = await self._driver.change(guard, *changes)
            except StoreUnavailable as error:
                unanswered = error
                found = await self._read(shard)
                assert found is not None  # Once claimed, a shard has its row for ever.
                version, write = found.version, found.write
            else:
                if row["[applied]"]:
                    return True
                version, write = row["shard_version"], row["shard_write"]
            if write == after.write:
                return True
            if write != state.write and unanswered is not None:
                raise unanswered
            if (version, write) != state[:2]:
                return False
        assert unanswered is not None
        raise unanswered

    async def _read(self, shard: int, *, serial: bool = True) -> _State | None:
        for version, write, layout in await self._driver.rows(cql.READ_SHARD, shard, serial=serial):
            return _State(version, write, decode_layout(layout))
        return None

    async def _head(
        self, shard: int, kind: int, floor: Cursor, gone: Collection[Cursor]
    ) -> Sequence[Cursor]:
        """The first row, and if it is to go those near it: a run is looked for among no more.

        Behind it may lie any number of rows that were deleted one by one. Where the server
        refuses to read past them no run is found, and the write happens without.
        """

        async def first(start: Cursor, end: Cursor, limit: int) -> list[Cursor]:
            values = (shard, kind, *start, *end, limit)
            return [Cursor(*row) for row in await self._driver.rows(cql.READ_PLACES, *values)]

        try:
            head = await first(floor, BEYOND, 1)
            if head and head[0] in gone:
                near = head[0].execute_at + RUN_MS
                last = max(place for place in gone if place.execute_at <= near)
                head = await first(floor, successor(last), len(gone) + 1)
        except StoreUnavailable:
            return ()
        return head

    def _mark(self) -> bytes:
        """Of one write: never the same twice."""
        return self._handle + next(self._writes).to_bytes(8, "big")

    # -- reading ------------------------------------------------------------------------

    async def due(self, reads: Sequence[DueRead]) -> list[Page]:
        async with self._driver.call():
            return await all_of(self._page(read) for read in reads)

    async def _page(self, read: DueRead) -> Page:
        place, end = successor(read.after), Cursor(read.until + 1, b"")
        if read.after == CURSOR_MIN:
            # Before the floor lies nothing but what was deleted, which costs time to read.
            place = (await self._layout(read.shard)).floor(cql.TIMER)
        timers: list[Timer] = []
        room, wanted = PAGE_BYTES_MAX, FIRST_ROWS
        while True:
            wanted = min(wanted, read.limit - len(timers))
            rows = await self._driver.rows(
                cql.READ_DUE, read.shard, cql.TIMER, *place, *end, wanted
            )
            found = [timer_from(*row) for row in rows]
            timers += found
            room -= sum(map(bytes_of, found))
            if len(found) < wanted:
                return Page(timers, more=False)
            if len(timers) == read.limit or room <= 0:
                return Page(timers, more=True)
            place = successor(timers[-1].cursor)
            wanted = 1 + room // (1 + (PAGE_BYTES_MAX - room) // len(timers))

    async def get(self, keys: Sequence[Key]) -> list[Timer | None]:
        def place(uuid: bytes, places: Places) -> Place | None:
            at = places.execute_at
            return None if at is None else (cql.TIMER, at, uuid)

        async with self._driver.call():
            rows = await self._found(keys, place)
            timers = [entry for entry in map(entry_of, rows) if isinstance(entry, Timer)]
            found = {Key(timer.shard, timer.namespace, timer.id): timer for timer in timers}
            return [found.get(key) for key in keys]

    async def outcomes(self, keys: Sequence[Key]) -> list[Finished | None]:
        def place(uuid: bytes, places: Places) -> Place | None:
            kind, at, execute_at = (
                places.finished_type,
                places.finished_at,
                places.finished_execute_at,
            )
            if kind is None or at is None or execute_at is None:
                return None
            return (kind, *history_place(uuid, execute_at, at))

        async with self._driver.call():
            rows = await self._found(keys, place)
            entries = [entry for entry in map(entry_of, rows) if isinstance(entry, Finished)]
            found = {Key(it.timer.shard, it.timer.namespace, it.timer.id): it for it in entries}
            return [found.get(key) for key in keys]

    async def _found(
        self, keys: Sequence[Key], place: Callable[[bytes, Places], Place | None]
    ) -> list[Any]:
        """The rows that the keys' rows point to."""
        uuids: defaultdict[int, list[bytes]] = defaultdict(list)
        for key in set(keys):
            uuids[key.shard].append(timer_uuid(key.namespace, key.id))

        async def in_shard(shard: int, uuids: list[bytes]) -> list[Any]:
            found: list[Any] = []
            for _ in range(TRIES):
                pointed = await self._places(shard, uuids)
                places = {uuid: place(uuid, places) for uuid, places in pointed.items()}
                wanted = {place: uuid for uuid, place in places.items() if place is not None}
                rows = await self._driver.rows_in(cql.READ_ROWS, shard, list(wanted))
                found += rows
                there = {(execute_at, uuid) for _, execute_at, uuid, *_ in rows}
                # What is not there has moved on in between.
                uuids = [uuid for place, uuid in wanted.items() if place[1:] not in there]
                if not uuids:
                    break
            return found

        parts = await all_of(in_shard(shard, wanted) for shard, wanted in uuids.items())
        return [row for rows in parts for row in rows]

    async def select(self, query: ListQuery) -> Listing:
        async with self._driver.call():
            return await select(self._driver, query, self._layout, self._walks)

    async def _layout(self, shard: int) -> Layout:
        state = await self._read(shard, serial=False)
        return Layout() if state is None else state.layout

    async def _places(self, shard: int, uuids: Sequence[bytes]) -> dict[bytes, Places]:
        rows = await self._driver.rows_in(cql.READ_KEYS, shard, uuids)
        return {uuid: Places(*places) for uuid, *places in rows}

    # -- documents ----------------------------------------------------------------------

    async def documents(self, kind: str) -> list[Document]:
        async with self._driver.call():
            return [
                Document(kind, name, version, body.encode())
                for kind, name, version, body in await self._driver.rows(cql.READ_DOCUMENTS, kind)
            ]

    async def write_document(
        self, kind: str, name: str, body: bytes, *, expected_version: int
    ) -> bool:
        text, mark = body.decode(), self._mark()
        version = expected_version + 1
        change: Change = (cql.INSERT_DOCUMENT, (text, mark, kind, name))
        if expected_version:
            values = (text, mark, version, kind, name, expected_version, mark)
            change = (cql.UPDATE_DOCUMENT, values)
        async with self._driver.call():
            for tries_left in reversed(range(TRIES)):
                try:
                    row = await self._driver.change(change)
                except StoreUnavailable:
                    if not tries_left:
                        raise
                else:
                    # That mark: it took effect before, and was not answered.
                    return bool(row["[applied]"]) or row.get("write") == mark
        raise AssertionError

    async def delete_document(self, kind: str, name: str, *, expected_version: int) -> bool:
        async with self._driver.call():
            change = (cql.DELETE_DOCUMENT, (kind, name, expected_version))
            return bool((await self._driver.change(change))["[applied]"])
