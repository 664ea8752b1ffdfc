"""The store in memory: the whole contract but durability. For tests, and for trying things out.

Nothing here waits, so no other code runs between a fence and its write: that is the whole
of its locking.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence

from msgspec import structs

from duetime.clock import Clock, SystemClock
from duetime.errors import StoreUnavailable
from duetime.model import Cursor, Finished, Lease, Timer
from duetime.store import (
    Batch,
    Document,
    DueRead,
    Key,
    ListCursor,
    Listing,
    ListQuery,
    Page,
    ShardRow,
    Traits,
)

TRAITS = Traits(
    name="memory",
    durable=False,
    reasons={
        "durable": "It is the process's own memory, for tests and trials.",
        "shared": "No other process can reach it.",
        "writes_in_flight_max": "A write waits for nothing.",
    },
)


class MemoryStore:
    """One database in this process's memory. What is closed and opened again is as it was."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._is_open = False
        self._claims: dict[int, ShardRow] = {}
        self._timers: dict[int, _Shard] = {}
        self._history: dict[tuple[bytes, int], Finished] = {}
        self._newest: dict[Key, Finished] = {}
        self._documents: dict[tuple[str, str], Document] = {}

    @property
    def traits(self) -> Traits:
        return TRAITS

    async def open(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False

    async def now(self) -> int:
        self._check_open()
        return self._clock.now()

    async def claim(self, shards: Sequence[int], *, owner: str, at: int) -> list[Lease]:
        self._check_open()
        leases = []
        for shard in shards:
            held = self._claims.get(shard)
            version = 1 if held is None else held.version + 1
            self._claims[shard] = ShardRow(shard, version, owner, at)
            leases.append(Lease(shard, version, owner))
        return leases

    async def release(self, leases: Sequence[Lease]) -> None:
        self._check_open()
        for lease in leases:
            if self._holds(lease):
                self._claims[lease.shard] = self._claims[lease.shard]._replace(owner=None)

    async def shards(self) -> list[ShardRow]:
        self._check_open()
        return [self._claims[shard] for shard in sorted(self._claims)]

    async def apply(self, batches: Sequence[Batch]) -> frozenset[int]:
        self._check_open()
        lost = set()
        for batch in batches:
            if not self._holds(batch.lease):
                lost.add(batch.lease.shard)
                continue
            shard = self._timers.setdefault(batch.lease.shard, _Shard())
            for timer in batch.removes:
                shard.remove(timer.cursor)
            for timer in batch.puts:
                shard.put(timer)
            for finished in batch.finished:
                self._record(finished)
        return frozenset(lost)

    async def due(self, reads: Sequence[DueRead]) -> list[Page]:
        self._check_open()
        return [self._timers.get(read.shard, _EMPTY).page(read) for read in reads]

    async def get(self, keys: Sequence[Key]) -> list[Timer | None]:
        self._check_open()
        return [
            self._timers.get(key.shard, _EMPTY).by_key.get((key.namespace, key.id)) for key in keys
        ]

    async def outcomes(self, keys: Sequence[Key]) -> list[Finished | None]:
        self._check_open()
        return [self._newest.get(key) for key in keys]

    async def select(self, query: ListQuery) -> Listing:
        self._check_open()
        found: list[Timer | Finished] = []
        if query.pending:
            found += [
                timer
                for shard in self._timers.values()
                for timer in shard.by_key.values()
                if _matches(timer, query) and timer.uuid not in query.without
            ]
        found += [
            finished
            for finished in self._history.values()
            if finished.status in query.finished
            and finished.at > query.finished_after
            and _matches(finished.timer, query)
        ]
        total = len(found) if query.total else None
        if query.after is not None:
            found = [entry for entry in found if _place(entry) > query.after]
        if query.sort == "execute_at":
            found.sort(key=_place, reverse=query.descending)
        else:
            found.sort(key=_age, reverse=query.descending)
        return Listing(found[query.offset :][: query.limit], total)

    async def purge(self, namespace: str, *, before: int, limit: int) -> int:
        self._check_open()
        old = [
            finished
            for finished in self._history.values()
            if finished.timer.namespace == namespace and finished.at <= before
        ]
        old.sort(key=lambda finished: finished.at)
        for finished in old[:limit]:
            del self._history[finished.timer.uuid, finished.at]
            key = _key(finished.timer)
            if self._newest.get(key) is finished:
                del self._newest[key]  # The newest goes last, so none older is left.
        return min(len(old), limit)

    async def documents(self, kind: str) -> list[Document]:
        self._check_open()
        return [self._documents[key] for key in sorted(self._documents) if key[0] == kind]

    async def write_document(
        self, kind: str, name: str, body: bytes, *, expected_version: int
    ) -> bool:
        self._check_open()
        if self._version(kind, name) != expected_version:
            return False
        self._documents[kind, name] = Document(kind, name, expected_version + 1, body)
        return True

    async def delete_document(self, kind: str, name: str, *, expected_version: int) -> bool:
        self._check_open()
        if expected_version == 0 or self._version(kind, name) != expected_version:
            return False
        del self._documents[kind, name]
        return True

    def _check_open(self) -> None:
        if not self._is_open:
            raise StoreUnavailable("the store is not open")

    def _holds(self, lease: Lease) -> bool:
        held = self._claims.get(lease.shard)
        return held is not None and held.version == lease.version

    def _version(self, kind: str, name: str) -> int:
        held = self._documents.get((kind, name))
        return 0 if held is None else held.version

    def _record(self, finished: Finished) -> None:
        if (finished.timer.uuid, finished.at) in self._history:
            return
        kept = structs.replace(
            finished,
            timer=structs.replace(
                finished.timer, attempts=finished.attempts, last_error=finished.last_error
            ),
        )
        self._history[kept.timer.uuid, kept.at] = kept
        key = _key(kept.timer)
        newest = self._newest.get(key)
        if newest is None or newest.at < kept.at:
            self._newest[key] = kept


class _Shard:
    """One shard's unfinished timers: by key, and their cursors in order."""

    def __init__(self) -> None:
        self.by_key: dict[tuple[str, str], Timer] = {}
        self._by_cursor: dict[Cursor, Timer] = {}
        self._cursors: list[Cursor] = []

    def put(self, timer: Timer) -> None:
        key = (timer.namespace, timer.id)
        replaced = self.by_key.get(key)
        if replaced is not None:
            self.remove(replaced.cursor)
        self.by_key[key] = timer
        self._by_cursor[timer.cursor] = timer
        insort(self._cursors, timer.cursor)

    def remove(self, cursor: Cursor) -> None:
        timer = self._by_cursor.pop(cursor, None)
        if timer is not None:
            del self.by_key[timer.namespace, timer.id]
            del self._cursors[bisect_left(self._cursors, cursor)]

    def page(self, read: DueRead) -> Page:
        start = bisect_right(self._cursors, read.after)
        cursors = self._cursors[start : start + read.limit]
        timers = [self._by_cursor[cursor] for cursor in cursors if cursor.execute_at <= read.until]
        return Page(timers, more=len(timers) == read.limit)


_EMPTY = _Shard()


def _key(timer: Timer) -> Key:
    return Key(timer.shard, timer.namespace, timer.id)


def _matches(timer: Timer, query: ListQuery) -> bool:
    return (
        timer.namespace == query.namespace
        and timer.id.startswith(query.id_prefix)
        and (query.execute_from is None or timer.execute_at >= query.execute_from)
        and (query.execute_before is None or timer.execute_at < query.execute_before)
    )


def _place(entry: Timer | Finished) -> ListCursor:
    if isinstance(entry, Timer):
        return ListCursor(entry.execute_at, entry.uuid, 0)
    return ListCursor(entry.timer.execute_at, entry.timer.uuid, entry.at)


def _age(entry: Timer | Finished) -> tuple[int, bytes, int]:
    place = _place(entry)
    timer = entry if isinstance(entry, Timer) else entry.timer
    return timer.created_at, place.uuid, place.finished_at
