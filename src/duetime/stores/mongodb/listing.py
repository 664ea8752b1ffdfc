"""One page of a list that shows unfinished timers and history together.

Each collection is walked by an index that has the list's order, to the end of the page and no
further; the server puts the two together.
"""

from collections.abc import Sequence
from typing import Any

from bson import MaxKey
from bson.datetime_ms import DatetimeMS
from msgspec import Struct
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase

from duetime.model import Finished, Timer
from duetime.store import Listing, ListQuery
from duetime.stores.mongodb.rows import binary, finished_of, history_key, timer_of
from duetime.stores.mongodb.schema import LOOKUP
from duetime.stores.sql.listing import after_prefix

Stage = dict[str, Any]


class Arm(Struct, frozen=True):
    """What one collection contributes: the rows that match the query."""

    collection: str
    index: str
    match: Stage
    place: str
    """Which field the list is sorted by."""
    uuid: str
    at: str | None
    """None where nothing has finished."""

    def count(self) -> list[Stage]:
        return [{"$match": self.match}, {"$count": "count"}]

    def rows(self, query: ListQuery) -> list[Stage]:
        """The page's, were there no other arm; from the query's `after` on."""
        direction = _direction(query)
        order = [field for field in (self.place, self.uuid, self.at) if field is not None]
        at = {"$literal": DatetimeMS(0)} if self.at is None else f"${self.at}"
        places = {"place": f"${self.place}", "uuid": f"${self.uuid}", "at": at}
        return [
            {"$match": {"$and": [self.match, self._after(query)]}},
            {"$sort": dict.fromkeys(order, direction)},
            {"$limit": query.offset + query.limit},
            {"$project": {"_id": 0, "row": "$$ROOT", **places}},
        ]

    def _after(self, query: ListQuery) -> Stage:
        if query.after is None:
            return {}
        execute_at, uuid, at = query.after
        here = DatetimeMS(execute_at)
        later: list[Stage] = [
            {self.place: {"$gt": here}},
            {self.place: here, self.uuid: {"$gt": binary(uuid)}},
        ]
        if self.at is not None:
            same = {self.place: here, self.uuid: binary(uuid)}
            later.append(same | {self.at: {"$gt": DatetimeMS(at)}})
        # The index is entered by the range; of a list of conditions it would not be sure.
        return {self.place: {"$gte": here}, "$or": later}


async def select(
    database: AsyncDatabase[Any], session: AsyncClientSession, query: ListQuery
) -> Listing:
    """The page, and where it is wanted the total; the session keeps both to one moment."""
    arms = arms_of(query)
    if not arms:
        return Listing([], 0 if query.total else None)
    total = None
    if query.total:
        counts = joined(arms, [arm.count() for arm in arms])
        total = sum([row["count"] async for row in await _asked(database, session, arms, counts)])
    page = await _asked(database, session, arms, page_of(arms, query))
    return Listing([_entry(row["row"]) async for row in page], total)


def arms_of(query: ListQuery) -> list[Arm]:
    """The collections that can hold what is asked for."""
    arms = []
    if query.pending:
        match: Stage = {"timer_namespace": query.namespace}
        match |= _between("_id.timer_execute_at", query)
        index = f"idx_timer_{query.sort.removesuffix('_at')}"
        if query.id_prefix:
            shards = {"$in": list(range(query.num_shards))}
            match |= {"_id.shard_id": shards, "_id.row_type": 2, "timer_id": _beginning(query)}
            index = LOOKUP
        if query.without:
            match["_id.timer_uuid"] = {"$nin": [binary(uuid) for uuid in query.without]}
        place = "_id.timer_execute_at" if query.sort == "execute_at" else "timer_created_at"
        arms.append(Arm("timers", index, match, place, "_id.timer_uuid", None))
    if query.finished:
        match = {
            "_id.finished_at": {"$gt": DatetimeMS(query.finished_after)},
            "finished_status": {"$in": list(query.finished)},
        } | _between("timer_execute_at", query)
        index = f"idx_history_{query.sort.removesuffix('_at')}"
        if query.id_prefix:
            match["_id"] = {
                bound: history_key(query.namespace, beginning)
                for bound, beginning in _beginning(query).items()
            }
            index = "_id_"
        else:
            match["_id.timer_namespace"] = query.namespace
        place = f"timer_{query.sort}"
        arms.append(Arm("history", index, match, place, "timer_uuid", "_id.finished_at"))
    return arms


def page_of(arms: Sequence[Arm], query: ListQuery) -> list[Stage]:
    """One page of what the arms found."""
    return [
        *joined(arms, [arm.rows(query) for arm in arms]),
        {"$sort": dict.fromkeys(("place", "uuid", "at"), _direction(query))},
        {"$skip": query.offset},
        {"$limit": query.limit},
    ]


def joined(arms: Sequence[Arm], pipelines: Sequence[list[Stage]]) -> list[Stage]:
    """What is asked of each arm, as it is asked of the first one's collection."""
    stages = list(pipelines[0])
    for arm, pipeline in zip(arms[1:], pipelines[1:], strict=True):
        stages.append({"$unionWith": {"coll": arm.collection, "pipeline": pipeline}})
    return stages


async def _asked(
    database: AsyncDatabase[Any],
    session: AsyncClientSession,
    arms: Sequence[Arm],
    stages: list[Stage],
) -> Any:
    first = arms[0]
    return await database[first.collection].aggregate(stages, session=session, hint=first.index)


def _entry(row: dict[str, Any]) -> Timer | Finished:
    return finished_of(row) if "finished_status" in row else timer_of(row)


def _between(field: str, query: ListQuery) -> Stage:
    bounds = {"$gte": query.execute_from, "$lt": query.execute_before}
    given = {name: DatetimeMS(at) for name, at in bounds.items() if at is not None}
    return {field: given} if given else {}


def _beginning(query: ListQuery) -> Stage:
    """Of ids that begin with the prefix."""
    beyond = after_prefix(query.id_prefix)
    return {"$gte": query.id_prefix, "$lt": MaxKey() if beyond is None else beyond}


def _direction(query: ListQuery) -> int:
    return -1 if query.descending else 1
