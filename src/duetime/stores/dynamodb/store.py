"""The store on DynamoDB.

Every write is a transaction. Those of a shard begin with a check of its row: a claim changes
that row, in a transaction too, and of two transactions on one item one comes first. So the check
is a fence, though it locks nothing that others could wait for.

A transaction has room for 100 items. What is more goes into several, one after the other, each
with its check, and each with all that concerns a timer.
"""

import random
from collections.abc import Callable, Iterator, Sequence

from duetime.errors import StoreUnavailable
from duetime.instants import format_instant, parse_instant
from duetime.model import Cursor, Finished, Lease, Timer
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
from duetime.stores.dynamodb import items
from duetime.stores.dynamodb.client import (
    ITEMS_MAX,
    SHARD_GB_MAX,
    Action,
    Client,
    Item,
    groups,
    side_by_side,
)
from duetime.stores.dynamodb.items import number, text
from duetime.stores.dynamodb.listing import select
from duetime.stores.dynamodb.tables import (
    BY_END,
    BY_TIME,
    TIME_KEY,
    Tables,
    migrate,
    time_of_answer,
)
from duetime.stores.dynamodb.url import parse

ACTIONS_MAX = 100
WRITE_BYTES_MAX = 1_000_000  # It may have 4 MB, but all that time nothing else is sent.
WRITES_IN_FLIGHT_MAX = 16
PAYLOAD_BYTES_MAX = 184_320  # Twice, with all else that a timer has, below an item's 400 KB.
CLAIM_TRIES = 100
DUE_BYTES_MAX = 64 * 1024 * 1024
PAGE_BYTES_MAX = 4 * 1024 * 1024
CLOCK_STEP_MS = 1_000

_SHARDS = {"document_kind": text("#shard")}  # Each shard's row again: to be listed without a scan.
_ZERO_KEY = text(items.time_key(Cursor(1_000, bytes(16))))
_WAS_THERE = "shard_version = :version"


class DynamoStore:
    """One set of tables."""

    def __init__(self, url: str, *, chance: Callable[[], float] = random.random) -> None:
        address = parse(url)
        self._tables = Tables(address.prefix)
        self._client = Client(address, chance=chance)

    @property
    def traits(self) -> Traits:
        return TRAITS

    async def open(self) -> None:
        await self._client.open()
        try:
            await migrate(self._client, self._tables)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        await self._client.close()

    async def now(self) -> int:
        with self._client.call():
            date = await time_of_answer(self._client, self._tables)
        return int(date.timestamp()) * 1000 + CLOCK_STEP_MS // 2

    async def claim(self, shards: Sequence[int], *, owner: str, at: int) -> list[Lease]:
        leases: dict[int, Lease] = {}

        async def take(some: list[int], versions: dict[int, int]) -> None:
            actions: list[Action] = []
            for shard in some:
                actions += self._claiming(shard, versions.get(shard, 0), owner, at)
            if not await self._client.transact(actions):
                for shard in some:
                    leases[shard] = Lease(shard, versions.get(shard, 0) + 1, owner)

        with self._client.call():
            for tries in range(CLAIM_TRIES):
                left = [shard for shard in shards if shard not in leases]
                if not left:
                    return [leases[shard] for shard in shards]
                if tries:
                    await self._client.wait(min(tries, 3))
                found = await self._client.items(self._tables.timers, map(items.shard_key, left))
                versions = {int(row["shard_id"]["N"]): _version(row) for row in found}
                # A transaction is lost to whoever claims one of its shards: after that, fewer.
                size = ACTIONS_MAX // 2 if tries == 0 else 1
                await side_by_side(take(some, versions) for some in groups(left, size))
        raise StoreUnavailable(f"{self._client.name}: others claim the same shards again and again")

    async def release(self, leases: Sequence[Lease]) -> None:
        async def let_go(some: list[Lease]) -> None:
            while some:
                actions = [action for lease in some for action in self._releasing(lease)]
                failed = await self._client.transact(actions)
                if not failed:
                    return
                some = [lease for place, lease in enumerate(some) if 2 * place not in failed]

        with self._client.call():
            await side_by_side(let_go(some) for some in groups(leases, ACTIONS_MAX // 2))

    async def shards(self) -> list[ShardRow]:
        with self._client.call():
            return [
                ShardRow(
                    int(row["document_name"]["S"]),
                    _version(row),
                    row["shard_owner_id"]["S"] if "shard_owner_id" in row else None,
                    parse_instant(row["shard_claimed_at"]["S"]),
                )
                for row in await self._documents("#shard")
            ]

    async def apply(self, batches: Sequence[Batch]) -> frozenset[int]:
        with self._client.call():
            holds = await side_by_side(self._write(batch) for batch in batches)
        return frozenset(
            batch.lease.shard for batch, held in zip(batches, holds, strict=True) if not held
        )

    async def due(self, reads: Sequence[DueRead]) -> list[Page]:
        bytes_max = min(PAGE_BYTES_MAX, DUE_BYTES_MAX // max(1, len(reads)))
        with self._client.call():
            return await side_by_side(self._page(read, bytes_max) for read in reads)

    async def get(self, keys: Sequence[Key]) -> list[Timer | None]:
        places = {
            key: items.sort_key(key.namespace, key.id, timer_uuid(key.namespace, key.id))
            for key in keys
        }
        wanted = [
            {"shard_id": number(key.shard), "sort_key": text(place)}
            for key, place in places.items()
        ]
        with self._client.call():
            timers = map(items.timer_of, await self._client.items(self._tables.timers, wanted))
            found = {Key(timer.shard, timer.namespace, timer.id): timer for timer in timers}
        return [found.get(key) for key in keys]

    async def outcomes(self, keys: Sequence[Key]) -> list[Finished | None]:
        wanted = list(dict.fromkeys((key.namespace, key.id) for key in keys))
        with self._client.call():
            newest = await side_by_side(self._newest(*key) for key in wanted)
        found = dict(zip(wanted, newest, strict=True))
        return [found[key.namespace, key.id] for key in keys]

    async def select(self, query: ListQuery) -> Listing:
        with self._client.call():
            return await select(self._client, self._tables, query)

    async def purge(self, namespace: str, *, before: int, limit: int) -> int:
        async def oldest(of: int) -> list[Item]:
            found: list[Item] = []

            def take(page: list[Item], _: bool) -> bool:
                found.extend(page)
                return len(found) < limit

            await self._client.walk(
                take,
                TableName=self._tables.history,
                IndexName=BY_END,
                KeyConditionExpression="history_bucket = :bucket AND finished_at <= :before",
                ExpressionAttributeValues={
                    ":bucket": items.bucket(namespace, of),
                    ":before": text(format_instant(before)),
                },
                Limit=limit,
            )
            return found

        with self._client.call():
            parts = await side_by_side(oldest(of) for of in range(items.BUCKETS))
            found = [item for part in parts for item in part]
            found.sort(key=lambda item: item["finished_at"]["S"])
            keys = [{name: item[name] for name in ("timer_uuid", "finished_at")} for item in found]
            await self._client.delete(self._tables.history, keys[:limit])
        return len(keys[:limit])

    async def documents(self, kind: str) -> list[Document]:
        with self._client.call():
            return [
                Document(
                    kind,
                    row["document_name"]["S"],
                    int(row["document_version"]["N"]),
                    row["document_body"]["S"].encode(),
                )
                for row in await self._documents(kind)
            ]

    async def write_document(
        self, kind: str, name: str, body: bytes, *, expected_version: int
    ) -> bool:
        item = {
            "document_kind": text(kind),
            "document_name": text(name),
            "document_version": number(expected_version + 1),
            "document_body": text(body.decode()),
        }
        write = {"TableName": self._tables.documents, "Item": item}
        with self._client.call():
            return not await self._client.transact([{"Put": write | _expecting(expected_version)}])

    async def delete_document(self, kind: str, name: str, *, expected_version: int) -> bool:
        if expected_version == 0:
            return False
        key = {"document_kind": text(kind), "document_name": text(name)}
        write = {"TableName": self._tables.documents, "Key": key}
        with self._client.call():
            return not await self._client.transact(
                [{"Delete": write | _expecting(expected_version)}]
            )

    # -- parts of a call ------------------------------------------------------------------

    async def _write(self, batch: Batch) -> bool:
        """Whether the lease held."""
        fence = self._fence(batch.lease)
        for place, part in enumerate(self._parts(batch)):
            while failed := await self._client.transact([fence, *part]):
                if 0 in failed and place == 0:
                    return False
                if 0 in failed:
                    raise StoreUnavailable(
                        f"{self._client.name}: shard {batch.lease.shard} was claimed by another"
                        " in the middle of a write"
                    )
                # These were to remove a timer that has moved: it stays.
                part = [it for number, it in enumerate(part, 1) if number not in failed]
        return True

    def _parts(self, batch: Batch) -> Iterator[list[Action]]:
        """What goes into one transaction each, all that concerns a timer together; at least one."""
        by_timer: dict[bytes, dict[int | None, Action]] = {}
        for timer in batch.removes:
            by_timer.setdefault(timer.uuid, {})[None] = self._removing(timer)
        for timer in batch.puts:
            by_timer.setdefault(timer.uuid, {})[None] = {
                "Put": {"TableName": self._tables.timers, "Item": items.timer_item(timer)}
            }
        for entry in batch.finished:
            by_timer.setdefault(entry.timer.uuid, {})[entry.at] = {
                "Put": {"TableName": self._tables.history, "Item": items.history_item(entry)}
            }
        part: list[Action] = []
        room = WRITE_BYTES_MAX
        for actions in by_timer.values():
            # A timer's history can be longer than that only where it is copied as a whole.
            for some in groups(actions.values(), ACTIONS_MAX - 1):
                weight = sum(map(items.weight, some))
                if part and (len(part) + len(some) >= ACTIONS_MAX or weight > room):
                    yield part
                    part, room = [], WRITE_BYTES_MAX
                part += some
                room -= weight
        yield part

    async def _page(self, read: DueRead, bytes_max: int) -> Page:
        timers: list[Timer] = []
        is_last = read.after.execute_at > read.until

        def take(found: list[Item], more: bool) -> bool:
            nonlocal is_last
            timers.extend(items.timer_of(it) for it in found if it["sort_key"] != items.SHARD_ROW)
            is_last = not more
            return len(timers) < read.limit and items.bytes_of(timers) < bytes_max

        if not is_last:
            await self._client.walk(
                take,
                TableName=self._tables.timers,
                IndexName=BY_TIME,
                Select="ALL_ATTRIBUTES",
                ConsistentRead=True,
                KeyConditionExpression=f"shard_id = :shard AND {TIME_KEY} BETWEEN :low AND :high",
                ExpressionAttributeValues={
                    ":shard": number(read.shard),
                    # All keys are of one length: what is longer comes right behind them.
                    ":low": text(items.time_key(read.after) + " "),
                    ":high": text(format_instant(read.until) + "$"),
                },
                # One more than wanted: the shard's own row may be among them.
                Limit=min(read.limit, ITEMS_MAX) + 1,
            )
        light = _within(timers, bytes_max)[: read.limit]
        return Page(light, more=not is_last or len(light) < len(timers))

    async def _newest(self, namespace: str, id: str) -> Finished | None:
        answer = await self._client.ask(
            "query",
            TableName=self._tables.history,
            ConsistentRead=True,
            KeyConditionExpression="timer_uuid = :uuid",
            ExpressionAttributeValues={":uuid": text(items.uuid_text(timer_uuid(namespace, id)))},
            ScanIndexForward=False,
            Limit=1,
        )
        return items.finished_of(answer["Items"][0]) if answer["Items"] else None

    async def _documents(self, kind: str) -> list[Item]:
        found: list[Item] = []

        def take(page: list[Item], _: bool) -> bool:
            found.extend(page)
            return True

        await self._client.walk(
            take,
            TableName=self._tables.documents,
            ConsistentRead=True,
            KeyConditionExpression="document_kind = :kind",
            ExpressionAttributeValues={":kind": text(kind)},
        )
        return found

    # -- actions of a transaction -----------------------------------------------------------

    def _fence(self, lease: Lease) -> Action:
        return {
            "ConditionCheck": {
                "TableName": self._tables.timers,
                "Key": items.shard_key(lease.shard),
                "ConditionExpression": _WAS_THERE,
                "ExpressionAttributeValues": {":version": number(lease.version)},
            }
        }

    def _removing(self, timer: Timer) -> Action:
        return {
            "Delete": {
                "TableName": self._tables.timers,
                "Key": items.timer_key(timer),
                "ConditionExpression": f"attribute_not_exists(sort_key) OR {TIME_KEY} = :place",
                "ExpressionAttributeValues": {":place": text(items.time_key(timer.cursor))},
            }
        }

    def _claiming(self, shard: int, version: int, owner: str, at: int) -> list[Action]:
        claimed = {
            "shard_version": number(version + 1),
            "shard_owner_id": text(owner),
            "shard_claimed_at": text(format_instant(at)),
        }
        row = {**items.shard_key(shard), "row_type": number(1), TIME_KEY: _ZERO_KEY, **claimed}
        write: dict[str, object] = {"TableName": self._tables.timers, "Item": row}
        if version:
            write["ConditionExpression"] = _WAS_THERE
            write["ExpressionAttributeValues"] = {":version": number(version)}
        else:
            write["ConditionExpression"] = "attribute_not_exists(shard_version)"
        mirror = {**_SHARDS, "document_name": text(f"{shard:010}"), **claimed}
        return [{"Put": write}, {"Put": {"TableName": self._tables.documents, "Item": mirror}}]

    def _releasing(self, lease: Lease) -> list[Action]:
        held = {
            "UpdateExpression": "REMOVE shard_owner_id",
            "ConditionExpression": _WAS_THERE,
            "ExpressionAttributeValues": {":version": number(lease.version)},
        }
        mirror = {**_SHARDS, "document_name": text(f"{lease.shard:010}")}
        return [
            {
                "Update": {
                    "TableName": self._tables.timers,
                    "Key": items.shard_key(lease.shard),
                    **held,
                }
            },
            {"Update": {"TableName": self._tables.documents, "Key": mirror, **held}},
        ]


TRAITS = Traits(
    name="dynamodb",
    writes_in_flight_max=WRITES_IN_FLIGHT_MAX,
    shared=True,
    clock_step_ms=CLOCK_STEP_MS,
    payload_bytes_max=PAYLOAD_BYTES_MAX,
    atomic_rows_max=ACTIONS_MAX - 1,
    shard_bytes_max=SHARD_GB_MAX * 1_000_000_000,
    lists_lag=True,
    reasons={
        "writes_in_flight_max": "Partitions take writes side by side.",
        "clock_step_ms": "Its clock is the `Date` of an answer, in whole seconds.",
        "payload_bytes_max": (
            "An item has room for 400 KB: a payload, as much metadata, and all else that a timer"
            " has."
        ),
        "atomic_rows_max": "A transaction has room for 100 items, one of which is the fence.",
        "shard_bytes_max": (
            "Only a local index can be read consistently, and with one, all items of a partition"
            " key have 10 GB together."
        ),
        "lists_lag": "Lists of history use global indexes, which follow their table in moments.",
    },
)


def _version(row: Item) -> int:
    return int(row["shard_version"]["N"])


def _expecting(version: int) -> dict[str, object]:
    if version == 0:
        return {"ConditionExpression": "attribute_not_exists(document_kind)"}
    return {
        "ConditionExpression": "document_version = :version",
        "ExpressionAttributeValues": {":version": number(version)},
    }


def _within(timers: list[Timer], bytes_max: int) -> list[Timer]:
    """As many of the first as weigh so much, and one at least."""
    room = bytes_max
    for place, timer in enumerate(timers):
        room -= items.bytes_of([timer])
        if room < 0:
            return timers[: max(1, place)]
    return timers
