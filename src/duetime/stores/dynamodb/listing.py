"""One page of a list that shows unfinished timers and history together.

Neither table knows a namespace as a whole: each shard's index, and each part of the history's,
is walked, and the best places of all are kept. Then these items are read. In the order of
execute_at a walk ends where nothing better can come; in that of created_at, or for a total, each
goes to its end.
"""

import asyncio
from typing import Any, NamedTuple

from duetime.errors import InvalidInput, StoreUnavailable
from duetime.instants import format_instant, parse_instant
from duetime.model import Cursor, Finished, Timer
from duetime.store import ListCursor, Listing, ListQuery
from duetime.stores.dynamodb import items
from duetime.stores.dynamodb.client import ITEMS_MAX, Client, Item, side_by_side
from duetime.stores.dynamodb.items import number, text
from duetime.stores.dynamodb.tables import BY_TIME, LISTED, TIME_KEY, Tables

OFFSET_MAX = 100_000
LIST_S_MAX = 60
TRIES = 5

Place = tuple[int, bytes, int]


class _Light(NamedTuple):
    """What an index knows of an entry."""

    place: Place
    item: Item


async def select(client: Client, tables: Tables, query: ListQuery) -> Listing:
    """The page; what moved or ended while it was looked for is left out."""
    if query.offset > OFFSET_MAX:
        raise InvalidInput(f"must be at most {OFFSET_MAX} on this database", "offset")
    try:
        async with asyncio.timeout(LIST_S_MAX):
            for _ in range(TRIES):
                walk = _Walk(client, tables, query)
                entries = await walk.page()
                if entries is not None:
                    return Listing(entries, walk.matching if query.total else None)
    except TimeoutError:
        raise StoreUnavailable(f"{client.name}: a list took longer than {LIST_S_MAX} s") from None
    raise StoreUnavailable(f"{client.name}: timers end faster than they can be listed")


class _Walk:
    """One try."""

    def __init__(self, client: Client, tables: Tables, query: ListQuery) -> None:
        self._client = client
        self._tables = tables
        self._query = query
        # Twice what is asked for: some may be gone before they are read.
        self._size = query.offset + 2 * query.limit
        self._best: list[_Light] = []
        self._worst: Place | None = None  # Of as many as are kept.
        self.matching = 0
        self._ends_early = query.sort == "execute_at" and not query.total and not query.id_prefix

    async def page(self) -> list[Timer | Finished] | None:
        """None where so many were gone that it would not be full."""
        query = self._query
        walks = []
        if query.pending:
            walks += [self._shard(shard) for shard in range(query.num_shards)]
        if query.finished:
            walks += [self._bucket(of) for of in range(items.BUCKETS)]
        await side_by_side(walks)
        self._cut()
        entries = await self._read(self._best[query.offset :])
        if len(entries) < query.limit and len(self._best) == self._size:
            return None  # There may be others behind those.
        return entries[: query.limit]

    def _take(self, page: list[Item], _: bool) -> bool:
        """Whether what comes next in this index may be among the best."""
        query = self._query
        place = None
        for item in page:
            if _matches(item, query):
                self.matching += 1
                place = _place(item, query)
                if query.after is None or place > query.after:
                    self._best.append(_Light(place, item))
        self._cut()
        return place is None or not self._ends_early or self._leaves_room_after(place)

    def _leaves_room_after(self, place: Place) -> bool:
        if self._worst is None:
            return True
        return place > self._worst if self._query.descending else place < self._worst

    def _cut(self) -> None:
        """Keep the best."""
        self._best.sort(key=lambda light: light.place, reverse=self._query.descending)
        if len(self._best) >= self._size:
            del self._best[self._size :]
            self._worst = self._best[-1].place

    async def _shard(self, shard: int) -> None:
        query = self._query
        if not query.id_prefix:
            timers = self._tables.timers
            await self._by_time(timers, "shard_id", number(shard), ConsistentRead=True)
            return
        await self._client.walk(
            self._take,
            TableName=self._tables.timers,
            ConsistentRead=True,
            KeyConditionExpression="shard_id = :shard AND begins_with(sort_key, :prefix)",
            ExpressionAttributeValues={
                ":shard": number(shard),
                ":prefix": text(items.sort_prefix(query.namespace, query.id_prefix)),
            },
            Limit=ITEMS_MAX,
            ProjectionExpression=f"shard_id, sort_key, {TIME_KEY}, {', '.join(LISTED)}",
        )

    async def _bucket(self, of: int) -> None:
        place = items.bucket(self._query.namespace, of)
        await self._by_time(self._tables.history, "history_bucket", place)

    async def _by_time(self, table: str, partition: str, value: dict[str, str], **how: Any) -> None:
        query = self._query
        low, high = "0", "~"
        if query.execute_from is not None:
            low = format_instant(query.execute_from)
        if query.after is not None and not query.total:
            low = max(low, items.time_key(Cursor(query.after.execute_at, query.after.uuid)))
        if query.execute_before is not None:
            high = format_instant(query.execute_before) + "!"  # Before any uuid of that instant.
        if low > high:
            return
        # The shard's own row may be among them.
        limit = min(ITEMS_MAX, self._size + 1) if self._ends_early else ITEMS_MAX
        await self._client.walk(
            self._take,
            TableName=table,
            IndexName=BY_TIME,
            KeyConditionExpression=f"{partition} = :part AND {TIME_KEY} BETWEEN :low AND :high",
            ExpressionAttributeValues={":part": value, ":low": text(low), ":high": text(high)},
            ScanIndexForward=not query.descending,
            Limit=limit,
            **how,
        )

    async def _read(self, lights: list[_Light]) -> list[Timer | Finished]:
        query, tables = self._query, self._tables
        timers = [light.item for light in lights if "sort_key" in light.item]
        ended = [light.item for light in lights if "sort_key" not in light.item]
        found = await side_by_side(
            [
                self._client.items(tables.timers, _keys(timers, "shard_id", "sort_key")),
                self._client.items(tables.history, _keys(ended, "timer_uuid", "finished_at")),
            ]
        )
        whole = {_place(item, query): item for part in found for item in part}
        return [
            items.timer_of(item) if "sort_key" in item else items.finished_of(item)
            for light in lights
            if (item := whole.get(light.place)) is not None
        ]


def _matches(item: Item, query: ListQuery) -> bool:
    if item.get("sort_key") == items.SHARD_ROW or item["timer_namespace"]["S"] != query.namespace:
        return False
    execute_at, uuid = items.cursor_of(item[TIME_KEY]["S"])
    if "finished_at" in item:
        ended_at = parse_instant(item["finished_at"]["S"])
        wanted = ended_at > query.finished_after and item["finished_status"]["S"] in query.finished
    else:
        wanted = uuid not in query.without
    return (
        wanted
        and item["timer_id"]["S"].startswith(query.id_prefix)
        and (query.execute_from is None or execute_at >= query.execute_from)
        and (query.execute_before is None or execute_at < query.execute_before)
    )


def _place(item: Item, query: ListQuery) -> Place:
    execute_at, uuid = items.cursor_of(item[TIME_KEY]["S"])
    at = parse_instant(item["finished_at"]["S"]) if "finished_at" in item else 0
    if query.sort == "created_at":
        return parse_instant(item["timer_created_at"]["S"]), uuid, at
    return ListCursor(execute_at, uuid, at)


def _keys(some: list[Item], *names: str) -> list[Item]:
    return [{name: item[name] for name in names} for item in some]
