"""The store on MongoDB.

A write is two round trips: one command with its fences, its removals, its puts and its
history, and the commit. The fence *writes* the shard's row, because transactions here read
what was there when they began: of a claim and a write that meet, the server undoes one, which
begins again and then sees what the other did. A fence that only read would notice nothing.

The command is written in the hope that all leases hold and no finished timer is recorded
already. If not, all of it is undone and done again with care: fences first, then what is left.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import chain
from typing import Any, TypeVar

from bson import MaxKey
from bson.datetime_ms import DatetimeMS
from pymongo import DeleteMany, InsertOne, ReturnDocument, UpdateOne
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import DuplicateKeyError, OperationFailure

from duetime.errors import StoreError
from duetime.model import CURSOR_MAX, Cursor, Finished, Lease, Timer
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
from duetime.stores.mongodb import rows
from duetime.stores.mongodb.connection import Connection, bulk
from duetime.stores.mongodb.errors import DUPLICATE_KEY
from duetime.stores.mongodb.listing import select
from duetime.stores.mongodb.schema import LOOKUP, PURGE, SHARD, migrate
from duetime.stores.mongodb.url import parse

T = TypeVar("T")
R = TypeVar("R")

WRITES_IN_FLIGHT_MAX = 4
WRITE_BYTES_MAX = 16 * 1024 * 1024
DUE_BYTES_MAX = 64 * 1024 * 1024
TIMER_BYTES_MAX = 15 * 1024 * 1024  # Of payload and metadata; 1 MiB is left for all else.
PAGE_BYTES_MAX = 4 * 1024 * 1024
SIDE_BY_SIDE_MAX = 8
GROUPS_MAX = 100  # Of keys, to a query.
KEYS_MAX = 10_000  # To a removal, which is a document too: at most 16 MB.


class MongoStore:
    """One database of a replica set."""

    def __init__(self, url: str) -> None:
        address = parse(url)
        self._connection = Connection(address)
        self._timers_name = f"{address.database}.timers"
        self._history_name = f"{address.database}.history"
        # Lists and counts may take long: most of the pool stays for what timers wait for.
        self._lists = asyncio.Semaphore(address.pool_size // 4)
        self._traits = Traits(
            name="mongodb",
            writes_in_flight_max=min(WRITES_IN_FLIGHT_MAX, address.pool_size // 4),
            shared=True,
            reasons={
                "writes_in_flight_max": (
                    "A write is two round trips, in which the server has time for others; a"
                    " quarter of the pool at most."
                ),
            },
        )

    @property
    def traits(self) -> Traits:
        return self._traits

    async def open(self) -> None:
        try:
            await self._connection.open()
            await self._connection.do(
                lambda session: migrate(self._connection.database(session), session)
            )
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        await self._connection.close()

    async def now(self) -> int:
        return int((await self._connection.hello())["localTime"])

    async def claim(self, shards: Sequence[int], *, owner: str, at: int) -> list[Lease]:
        change = {
            "$inc": {"shard_version": 1},
            "$set": {"shard_owner_id": owner, "shard_claimed_at": DatetimeMS(at)},
        }

        # Each by itself, without a transaction: that would be undone by whoever still writes to
        # one of them, again and again, where a single statement waits for its moment.
        async def take(session: AsyncClientSession, shard: int) -> Lease:
            row = await self._connection.insist(
                session,
                lambda session: self._timers(session).find_one_and_update(
                    {"_id": rows.shard_key(shard)},
                    change,
                    {"shard_version": 1},
                    upsert=True,
                    return_document=ReturnDocument.AFTER,
                    session=session,
                ),
            )
            assert row is not None
            return Lease(shard, row["shard_version"], owner)

        return await self._side_by_side(take, shards)

    async def release(self, leases: Sequence[Lease]) -> None:
        clear = {"$set": {"shard_owner_id": None}}
        clears = [UpdateOne(_held(lease), clear, namespace=self._timers_name) for lease in leases]
        if clears:
            await self._connection.do(lambda session: bulk(session, clears))

    async def shards(self) -> list[ShardRow]:
        async def work(session: AsyncClientSession) -> list[ShardRow]:
            found = self._timers(session).find({"_id.row_type": 1}, session=session)
            return [
                ShardRow(
                    row["_id"]["shard_id"],
                    row["shard_version"],
                    row["shard_owner_id"],
                    int(row["shard_claimed_at"]),
                )
                async for row in found.hint(SHARD).sort("_id.shard_id")
            ]

        return await self._connection.do(work)

    async def apply(self, batches: Sequence[Batch]) -> frozenset[int]:
        lost: frozenset[int] = frozenset()
        for piece in list(_pieces(batches)):
            lost |= await self._write(piece)
        return lost

    async def _write(self, batches: Sequence[Batch]) -> frozenset[int]:
        # What changes nothing would be no write: hence a number that grows.
        write = {"$inc": {"shard_writes": 1}}
        fences = [
            UpdateOne(_held(batch.lease), write, namespace=self._timers_name) for batch in batches
        ]

        async def hopefully(session: AsyncClientSession) -> bool:
            try:
                done = await bulk(session, [*fences, *self._changes(batches, _insert)])
            except OperationFailure as error:
                if error.code != DUPLICATE_KEY:
                    raise
            else:
                if done.matched_count == len(batches):
                    return True
            await session.abort_transaction()
            return False

        async def carefully(session: AsyncClientSession) -> frozenset[int]:
            done = await bulk(session, fences, verbose=True)
            lost = frozenset(
                batch.lease.shard
                for number, batch in enumerate(batches)
                if not done.update_results[number].matched_count
            )
            held = [batch for batch in batches if batch.lease.shard not in lost]
            changes = self._changes(held, _insert_if_absent)
            if changes:
                await bulk(session, changes)
            return lost

        if await self._connection.transact(hopefully):
            return frozenset()
        return await self._connection.transact(carefully)

    async def due(self, reads: Sequence[DueRead]) -> list[Page]:
        bytes_max = min(PAGE_BYTES_MAX, DUE_BYTES_MAX // max(1, len(reads)))

        async def page(session: AsyncClientSession, read: DueRead) -> Page:
            places = {
                "$gt": rows.timer_key(read.shard, read.after),
                "$lte": rows.timer_key(read.shard, Cursor(read.until, CURSOR_MAX.uuid)),
            }
            found = self._timers(session).find({"_id": places}, session=session).sort("_id")
            timers: list[Timer] = []
            room = bytes_max
            async with found.limit(read.limit).batch_size(read.limit) as cursor:
                async for row in cursor:
                    timer = rows.timer_of(row)
                    timers.append(timer)
                    room -= rows.weight(timer)
                    if room <= 0:
                        break
            return Page(timers, more=room <= 0 or len(timers) == read.limit)

        return await self._side_by_side(page, reads)

    async def get(self, keys: Sequence[Key]) -> list[Timer | None]:
        groups: dict[tuple[int, str], list[str]] = {}
        for key in keys:
            groups.setdefault((key.shard, key.namespace), []).append(key.id)
        conditions = [
            _of_keys(*group, some)
            for group, ids in groups.items()
            for some in _chunks(ids, KEYS_MAX)
        ]

        async def work(session: AsyncClientSession) -> dict[Key, Timer]:
            timers = self._timers(session)
            found = {}
            for some in _chunks(conditions, GROUPS_MAX):
                async for row in timers.find({"$or": some}, session=session).hint(LOOKUP):
                    timer = rows.timer_of(row)
                    found[Key(timer.shard, timer.namespace, timer.id)] = timer
            return found

        found = await self._connection.do(work)
        return [found.get(key) for key in keys]

    async def outcomes(self, keys: Sequence[Key]) -> list[Finished | None]:
        async def newest(session: AsyncClientSession, key: Key) -> Finished | None:
            entries = self._history(session).find({"_id": rows.history_of(key)}, session=session)
            async for row in entries.sort("_id", -1).limit(1):
                return rows.finished_of(row)
            return None

        return await self._side_by_side(newest, keys)

    async def select(self, query: ListQuery) -> Listing:
        async with self._lists:
            return await self._connection.do(
                lambda session: select(self._connection.database(session), session, query),
                snapshot=True,
            )

    async def purge(self, namespace: str, *, before: int, limit: int) -> int:
        async def work(session: AsyncClientSession) -> int:
            history = self._history(session)
            old = history.find(
                {"_id.timer_namespace": namespace, "_id.finished_at": {"$lte": DatetimeMS(before)}},
                {"_id": 1},
                session=session,
            )
            ordered = old.hint(PURGE).sort("_id.finished_at").limit(limit).batch_size(limit)
            keys = [row["_id"] async for row in ordered]
            done = await history.delete_many({"_id": {"$in": keys}}, session=session)
            return done.deleted_count

        return await self._connection.do(work)

    async def documents(self, kind: str) -> list[Document]:
        async def work(session: AsyncClientSession) -> list[Document]:
            of_kind = {"$gte": {"kind": kind}, "$lt": {"kind": kind, "name": MaxKey()}}
            found = self._documents(session).find({"_id": of_kind}, session=session)
            return [
                Document(kind, row["_id"]["name"], row["version"], row["body"].encode())
                async for row in found.sort("_id")
            ]

        return await self._connection.do(work)

    async def write_document(
        self, kind: str, name: str, body: bytes, *, expected_version: int
    ) -> bool:
        key = {"kind": kind, "name": name}
        text = body.decode()

        async def insert(session: AsyncClientSession) -> bool:
            row = {"_id": key, "version": 1, "body": text}
            try:
                await self._documents(session).insert_one(row, session=session)
            except DuplicateKeyError:
                return False
            return True

        async def update(session: AsyncClientSession) -> bool:
            change = {"$inc": {"version": 1}, "$set": {"body": text}}
            done = await self._documents(session).update_one(
                {"_id": key, "version": expected_version}, change, session=session
            )
            return done.matched_count == 1

        return await self._connection.do(insert if expected_version == 0 else update)

    async def delete_document(self, kind: str, name: str, *, expected_version: int) -> bool:
        async def work(session: AsyncClientSession) -> bool:
            key = {"kind": kind, "name": name}
            done = await self._documents(session).delete_one(
                {"_id": key, "version": expected_version}, session=session
            )
            return done.deleted_count == 1

        return await self._connection.do(work)

    async def _side_by_side(
        self, work: Callable[[AsyncClientSession, T], Awaitable[R]], items: Sequence[T]
    ) -> list[R]:
        """Do it for each, some at a time; the answers in their order."""

        async def lane(mine: Sequence[T]) -> list[R]:
            return await self._connection.do(lambda session: _each(work, session, mine))

        lanes = min(SIDE_BY_SIDE_MAX, len(items))
        answers = await asyncio.gather(*[lane(items[first::lanes]) for first in range(lanes)])
        return [answers[number % lanes][number // lanes] for number in range(len(items))]

    def _changes(
        self, batches: Sequence[Batch], record: Callable[[dict[str, Any], str], Any]
    ) -> list[Any]:
        removed = [
            rows.timer_key(timer.shard, timer.cursor)
            for batch in batches
            for timer in batch.removes
        ]
        replaced: dict[tuple[int, str], list[str]] = {}
        for timer in chain.from_iterable(batch.puts for batch in batches):
            replaced.setdefault((timer.shard, timer.namespace), []).append(timer.id)
        gone = [{"_id": {"$in": keys}} for keys in _chunks(removed, KEYS_MAX)]
        changes: list[Any] = [DeleteMany(keys, namespace=self._timers_name) for keys in gone]
        changes += [
            DeleteMany(_of_keys(*group, some), hint=LOOKUP, namespace=self._timers_name)
            for group, ids in replaced.items()
            for some in _chunks(ids, KEYS_MAX)
        ]
        for batch in batches:
            changes += [
                InsertOne(rows.timer_document(timer), namespace=self._timers_name)
                for timer in batch.puts
            ]
        for batch in batches:
            changes += [
                record(rows.history_document(entry), self._history_name) for entry in batch.finished
            ]
        return changes

    def _timers(self, session: AsyncClientSession) -> AsyncCollection[Any]:
        return self._connection.database(session).timers

    def _history(self, session: AsyncClientSession) -> AsyncCollection[Any]:
        return self._connection.database(session).history

    def _documents(self, session: AsyncClientSession) -> AsyncCollection[Any]:
        return self._connection.database(session).documents


async def _each(
    work: Callable[[AsyncClientSession, T], Awaitable[R]],
    session: AsyncClientSession,
    items: Sequence[T],
) -> list[R]:
    return [await work(session, item) for item in items]


def _held(lease: Lease) -> dict[str, Any]:
    """The shard's row, while the lease holds."""
    return {"_id": rows.shard_key(lease.shard), "shard_version": lease.version}


def _of_keys(shard: int, namespace: str, ids: Sequence[str]) -> dict[str, Any]:
    """Timers of one shard, wherever they stand: by the index LOOKUP."""
    return {
        "_id.shard_id": shard,
        "_id.row_type": 2,
        "timer_namespace": namespace,
        "timer_id": {"$in": ids},
    }


def _insert(document: dict[str, Any], namespace: str) -> Any:
    return InsertOne(document, namespace=namespace)


def _insert_if_absent(document: dict[str, Any], namespace: str) -> Any:
    key = document.pop("_id")
    return UpdateOne({"_id": key}, {"$setOnInsert": document}, upsert=True, namespace=namespace)


def _pieces(batches: Sequence[Batch]) -> Iterator[Sequence[Batch]]:
    """What goes into one transaction each: all of it, unless payloads make it too heavy.

    A shard's batch is never divided.
    """
    piece: list[Batch] = []
    room = WRITE_BYTES_MAX
    for batch in batches:
        timers = [*batch.puts, *(entry.timer for entry in batch.finished)]
        weights = list(map(rows.weight, timers))
        if max(weights, default=0) > TIMER_BYTES_MAX:
            raise StoreError("a timer is too large for MongoDB: a document holds 16 MB at most")
        weight = sum(weights)
        if piece and weight > room:
            yield piece
            piece, room = [], WRITE_BYTES_MAX
        piece.append(batch)
        room -= weight
    if piece:
        yield piece


def _chunks(items: Sequence[T], size: int) -> list[Sequence[T]]:
    return [items[first : first + size] for first in range(0, len(items), size)]
