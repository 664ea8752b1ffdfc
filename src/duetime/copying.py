"""Moving a stopped service to another store: its namespaces, pending timers and history.

Both stores are claimed, and so fenced: a node that still served the source would have to take
its shards back, and a second copy those of the destination; either is noticed.

What was interrupted goes on where it was: a document in the destination says how far it came,
and under which leases of the source. If these have been superseded, the source was served
meanwhile: then the destination is emptied, and all of it copied anew. The namespaces come last,
so that an unfinished copy has nothing that could be served.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Struct

from duetime.clock import Clock
from duetime.cluster.heartbeat import KIND as NODE
from duetime.errors import DuetimeError, LeaseLost
from duetime.model import CURSOR_MIN, INSTANT_MAX, Cursor, Finished, Lease, Namespace, Timer
from duetime.namespaces import KIND as NAMESPACE
from duetime.namespaces import Namespaces
from duetime.store import Batch, DueRead, ListCursor, ListQuery, Store
from duetime.views import list_cursor

PAGE_TIMERS = 1_000
SHARDS_AT_ONCE = 16
SAVE_S = 2.0
LISTEN_S = 2.5  # Longer than a node goes without a heartbeat.
_KIND, _NAME = "copy", "progress"

Tell = Callable[[int, int], None]


class NotCopied(DuetimeError):
    """The copy cannot be made, or cannot be finished; the message says why."""


class Count(NamedTuple):
    """How much a namespace holds."""

    pending: int
    finished: int


class Copied(NamedTuple):
    """What the destination holds now."""

    namespaces: int
    pending: int
    finished: int


class _Progress(Struct):
    """How far a copy came. A place is None once nothing is left behind it."""

    source: str
    """What tells one service's data from another's."""
    versions: dict[int, int] = {}
    """Of the source's leases, by shard."""
    shards: dict[int, Cursor | None] = {}
    histories: dict[str, ListCursor | None] = {}


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Progress).decode


async def copy(source: Store, destination: Store, *, clock: Clock, tell: Tell) -> Copied:
    """Copy all of it; both stores are open. `tell` hears how many of how many were copied.

    `NotCopied`, `StoreError`; called again with the same two stores, it goes on.
    """
    await asyncio.gather(
        _not_served(source, "the source"), _not_served(destination, "the destination")
    )
    return await _Copy(source, destination, clock=clock, tell=tell).run()


class _Copy:
    def __init__(self, source: Store, destination: Store, *, clock: Clock, tell: Tell) -> None:
        self._source, self._destination = source, destination
        self._clock = clock
        self._tell = tell
        self._known = Namespaces(source)
        self._from: dict[int, Lease] = {}
        self._to: dict[int, Lease] = {}
        self._progress = _Progress("")
        self._version = 0  # Of the document that keeps it.
        self._saved_at = clock.monotonic()
        self._copied = self._total = 0

    async def run(self) -> Copied:
        await self._known.load()
        if not self._known.all():
            raise NotCopied("the source has no namespaces: there is nothing to copy")
        shards = range(self._known.num_shards_max())
        await self._resume()
        self._to = await self._claim(self._destination, shards)
        await self._claim_source(shards)
        counts = await self._count(self._source)
        self._total = sum(map(sum, counts.values()))
        self._tell(self._copied, self._total)
        await self._copy_timers()
        for namespace in self._known.all():
            await self._copy_history(namespace)
        await self._save()
        found = await self._count(self._destination)
        for name, count in counts.items():
            if found[name] != count:
                raise NotCopied(f"namespace {name!r} has {count}, and its copy {found[name]}")
        await self._copy_namespaces()
        await self._source.release(list(self._from.values()))
        await self._destination.release(list(self._to.values()))
        await self._destination.delete_document(_KIND, _NAME, expected_version=self._version)
        return Copied(
            len(counts),
            sum(count.pending for count in counts.values()),
            sum(count.finished for count in counts.values()),
        )

    # -- beginning ----------------------------------------------------------------------

    async def _resume(self) -> None:
        """Find out how far it came. The destination is empty, or an unfinished copy of this."""
        oldest = min(self._known.all(), key=lambda namespace: namespace.created_at)
        self._progress = _Progress(f"{oldest.name} since {oldest.created_at}")
        for document in await self._destination.documents(_KIND):
            self._progress, self._version = _decode(document.body), document.version
            if self._progress.source != f"{oldest.name} since {oldest.created_at}":
                raise NotCopied("the destination holds an unfinished copy of another source")
        if self._version == 0 and await self._destination.documents(NAMESPACE):
            raise NotCopied("the destination is not empty: it has namespaces already")

    async def _claim_source(self, shards: Sequence[int]) -> None:
        rows = {row.shard: row for row in await self._source.shards()}
        progress = self._progress
        if self._version and all(
            shard in rows and progress.versions.get(shard) == rows[shard].version
            for shard in shards
        ):
            self._from = {
                shard: Lease(shard, rows[shard].version, rows[shard].owner or "")
                for shard in shards
            }
            # What was copied is counted again here, and not kept: it need not be exact.
            present = await self._count(self._destination)
            self._copied = sum(map(sum, present.values()))
            return
        if self._version:
            await self._empty()
        self._from = await self._claim(self._source, shards)
        self._progress = _Progress(
            progress.source,
            {lease.shard: lease.version for lease in self._from.values()},
            dict.fromkeys(shards, CURSOR_MIN),
            {namespace.name: ListCursor(*CURSOR_MIN, 0) for namespace in self._known.all()},
        )
        await self._save()

    async def _claim(self, store: Store, shards: Sequence[int]) -> dict[int, Lease]:
        leases = await store.claim(shards, owner="duetime copy", at=self._clock.now())
        return {lease.shard: lease for lease in leases}

    async def _empty(self) -> None:
        """Delete what an earlier try has copied."""
        for shard in self._progress.shards:
            if shard not in self._to:
                (lease,) = await self._destination.claim(
                    [shard], owner="duetime copy", at=self._clock.now()
                )
                self._to[shard] = lease
            more = True
            while more:
                (page,) = await self._destination.due(
                    [DueRead(shard, CURSOR_MIN, INSTANT_MAX, PAGE_TIMERS)]
                )
                await self._write([Batch(self._to[shard], [], page.timers, [])])
                more = page.more
        for name in self._progress.histories:
            while await self._destination.purge(name, before=INSTANT_MAX, limit=PAGE_TIMERS):
                pass

    # -- copying ------------------------------------------------------------------------

    async def _copy_timers(self) -> None:
        places = self._progress.shards
        while reads := [
            DueRead(shard, place, INSTANT_MAX, PAGE_TIMERS)
            for shard, place in places.items()
            if place is not None
        ][:SHARDS_AT_ONCE]:
            pages = await self._source.due(reads)
            await self._write(
                [
                    Batch(self._to[read.shard], page.timers, [], [])
                    for read, page in zip(reads, pages, strict=True)
                    if page.timers
                ]
            )
            for read, page in zip(reads, pages, strict=True):
                places[read.shard] = page.timers[-1].cursor if page.more else None
            await self._advance(sum(len(page.timers) for page in pages))

    async def _copy_history(self, namespace: Namespace) -> None:
        places = self._progress.histories
        while (place := places[namespace.name]) is not None:
            listing = await self._source.select(
                _query(namespace, pending=False, after=place, limit=PAGE_TIMERS)
            )
            entries = listing.entries
            await self._write(list(self._batches(entries)))
            more = len(entries) == PAGE_TIMERS
            places[namespace.name] = list_cursor(entries[-1]) if more else None
            await self._advance(len(entries))

    def _batches(self, entries: Sequence[Timer | Finished]) -> Iterator[Batch]:
        by_shard: dict[int, list[Finished]] = {}
        for entry in entries:
            assert isinstance(entry, Finished)
            by_shard.setdefault(entry.timer.shard, []).append(entry)
        for shard, finished in by_shard.items():
            yield Batch(self._to[shard], [], [], finished)

    async def _copy_namespaces(self) -> None:
        for document in await self._source.documents(NAMESPACE):
            await self._destination.write_document(
                NAMESPACE, document.name, document.body, expected_version=0
            )

    async def _write(self, batches: Sequence[Batch]) -> None:
        for shard in await self._destination.apply(batches):
            reason = "the destination is in use: something else claimed it meanwhile"
            raise NotCopied(reason) from LeaseLost(shard, self._to[shard].version)

    async def _advance(self, copied: int) -> None:
        self._copied += copied
        self._tell(min(self._copied, self._total), self._total)
        if self._clock.monotonic() - self._saved_at >= SAVE_S:
            await self._save()

    async def _save(self) -> None:
        """Note how far it came; and that the source is still ours."""
        for shard in await self._source.apply(
            [Batch(lease, [], [], []) for lease in self._from.values()]
        ):
            reason = "the source is in use: stop what serves it, and copy again"
            raise NotCopied(reason) from LeaseLost(shard, self._from[shard].version)
        if not await self._destination.write_document(
            _KIND, _NAME, _encode(self._progress), expected_version=self._version
        ):
            raise NotCopied("the destination is in use: another copy into it is under way")
        self._version += 1
        self._saved_at = self._clock.monotonic()

    async def _count(self, store: Store) -> dict[str, Count]:
        return {
            namespace.name: Count(
                await _total(store, _query(namespace, finished=(), total=True)),
                await _total(store, _query(namespace, pending=False, total=True)),
            )
            for namespace in self._known.all()
        }


def _query(namespace: Namespace, **how: object) -> ListQuery:
    return msgspec.structs.replace(
        ListQuery(namespace=namespace.name, num_shards=namespace.num_shards, limit=1), **how
    )


async def _total(store: Store, query: ListQuery) -> int:
    total = (await store.select(query)).total
    assert total is not None
    return total


async def _not_served(store: Store, which: str) -> None:
    """`NotCopied` if nodes are alive there: those whose heartbeat is written anew."""
    before = await store.documents(NODE)
    if before:
        await asyncio.sleep(LISTEN_S)
        live = sorted({node.name for node in set(await store.documents(NODE)) - set(before)})
        if live:
            raise NotCopied(f"{which} is in use: stop {', '.join(live)} first")
