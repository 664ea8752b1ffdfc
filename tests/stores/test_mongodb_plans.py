"""That what the store sends is little, and finds its rows by the one index meant for it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from pymongo.monitoring import CommandListener

from duetime.model import CURSOR_MIN, INSTANT_MAX, Cursor, Lease
from duetime.store import DueRead, Key, ListCursor, ListQuery
from duetime.stores.mongodb import MongoStore, connection
from duetime.stores.mongodb.schema import LOOKUP, PURGE, SHARD
from duetime.testing.conformance.timers import NOW, a_timer, batch, finished
from tests.stores.mongodb_database import MongoDatabase

pytestmark = pytest.mark.server

SHARDS = 4
ROWS = 300  # Of each shard.
ID = "_id_"
KEPT = ("filter", "sort", "limit", "hint", "projection", "pipeline", "cursor")

Call = Callable[[MongoStore], Awaitable[object]]


class Recorder(CommandListener):
    """What a store sends, but for what belongs to sessions."""

    def __init__(self) -> None:
        self.commands: list[dict[str, Any]] = []

    def started(self, event: Any) -> None:
        if event.command_name not in ("ping", "hello", "endSessions"):
            self.commands.append(dict(event.command))

    def succeeded(self, event: Any) -> None: ...

    def failed(self, event: Any) -> None: ...


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setitem(connection.FIXED, "event_listeners", [recorder])
    return recorder


@pytest_asyncio.fixture
async def store(mongodb: MongoDatabase, recorder: Recorder) -> AsyncIterator[MongoStore]:
    store = MongoStore(mongodb.url)
    await store.open()
    for lease in await store.claim(range(SHARDS), owner="node-a", at=NOW):
        timers = [
            a_timer(f"{lease.shard}-{n}", shard=lease.shard, at=NOW + n // 10, created_at=NOW - n)
            for n in range(ROWS)
        ]
        await store.apply([batch(lease, puts=timers, finished=list(map(finished, timers)))])
    await store.write_document("kind", "name", b"{}", expected_version=0)
    recorder.commands.clear()
    yield store
    await store.close()


def _statements(commands: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As `explain` takes them, those that look for rows."""
    found = []
    for command in commands:
        kept = {name: value for name, value in command.items() if name in KEPT}
        found += [{it: command[it]} | kept for it in ("find", "aggregate") if it in command]
        rows = command.get("deletes", ())
        found += [{"delete": command["delete"], "deletes": [row]} for row in rows]
        if "findAndModify" in command:
            change = {"q": command["query"], "u": command["update"]}
            found.append({"update": command["findAndModify"], "updates": [change]})
        for row in command.get("ops", ()):
            collection = command["nsInfo"][next(iter(row.values()))]["ns"].partition(".")[2]
            change = {"q": row.get("filter")}
            if "hint" in row:
                change["hint"] = row["hint"]
            if "delete" in row:
                found.append({"delete": collection, "deletes": [change | {"limit": 0}]})
            elif "update" in row:
                found.append({"update": collection, "updates": [change | {"u": row["updateMods"]}]})
    return found


def _stages(plan: Any) -> list[dict[str, Any]]:
    """All of a plan's stages, wherever they stand."""
    if isinstance(plan, list):
        return [stage for part in plan for stage in _stages(part)]
    if not isinstance(plan, dict):
        return []
    mine = [plan] if "stage" in plan else []
    chosen = [part for name, part in plan.items() if name != "rejectedPlans"]
    return mine + _stages(chosen)


def _indexes(mongodb: MongoDatabase, statement: dict[str, Any]) -> tuple[set[str], int]:
    """Those that its plan uses, and how many keys it looked at."""
    explain = {"explain": statement, "verbosity": "executionStats"}
    explained = mongodb.ask(explain, database=mongodb.name)
    stages = _stages(explained)
    names = {stage["stage"] for stage in stages}
    assert "COLLSCAN" not in names, explained
    by_id = {ID} if names & {"IDHACK", "EXPRESS_IXSCAN", "EXPRESS_DELETE"} else set()
    examined = explained.get("executionStats", {}).get("totalKeysExamined", 0)
    return by_id | {stage["indexName"] for stage in stages if "indexName" in stage}, examined


A_WRITE = batch(
    Lease(2, 1, "node-a"),
    removes=[a_timer("2-7", shard=2)],
    puts=[a_timer("2-8", shard=2), a_timer("new", shard=2)],
    finished=[finished(a_timer("2-7", shard=2), at=NOW + 99)],
)


@pytest.mark.parametrize(
    ("call", "indexes", "keys_max"),
    [
        (lambda store: store.apply([A_WRITE]), [ID, ID, LOOKUP], 4),
        (lambda store: store.due([DueRead(2, Cursor(NOW + 5, bytes(16)), NOW + 9, 15)]), [ID], 16),
        (lambda store: store.get([Key(2, "default", "2-7"), Key(2, "default", "x")]), [LOOKUP], 4),
        (lambda store: store.outcomes([Key(2, "default", "2-7")]), [ID], 2),
        (lambda store: store.claim([2], owner="node-b", at=NOW), [ID], 1),
        (lambda store: store.release([Lease(2, 1, "node-a")]), [ID], 1),
        (lambda store: store.shards(), [SHARD], SHARDS + 1),
        (lambda store: store.purge("default", before=NOW + 60, limit=10), [PURGE, ID], 21),
        (lambda store: store.documents("kind"), [ID], 2),
        (lambda store: store.delete_document("kind", "name", expected_version=1), [ID], 1),
    ],
)
async def test_a_statement_seeks_by_the_index_meant_for_it(
    mongodb: MongoDatabase,
    store: MongoStore,
    recorder: Recorder,
    call: Call,
    indexes: list[str],
    keys_max: int,
) -> None:
    await call(store)
    statements = _statements(recorder.commands)
    assert len(statements) == len(indexes)
    for statement, index in zip(statements, indexes, strict=True):
        used, examined = _indexes(mongodb, statement)
        assert used == {index}, statement
        assert examined <= keys_max, statement


async def test_a_thousand_timers_are_two_round_trips_to_write_and_one_to_read(
    store: MongoStore, recorder: Recorder
) -> None:
    leases = await store.claim(range(SHARDS), owner="node-a", at=NOW)
    timers = [
        [a_timer(f"{shard}-{n}", shard=shard, at=NOW + 1_000 + n) for n in range(250)]
        for shard in range(SHARDS)
    ]
    recorder.commands.clear()
    await store.apply([batch(lease, puts=timers[lease.shard]) for lease in leases])
    await store.apply(
        [
            batch(
                lease,
                removes=timers[lease.shard],
                finished=[finished(timer, at=NOW + 2_000) for timer in timers[lease.shard]],
            )
            for lease in leases
        ]
    )
    sent = [next(iter(command)) for command in recorder.commands]
    assert sent == ["bulkWrite", "commitTransaction"] * 2
    written = [
        [row for row in command["ops"] if "insert" not in row] for command in recorder.commands[::2]
    ]
    assert [len(rows) for rows in written] == [SHARDS + SHARDS, SHARDS + 1]
    recorder.commands.clear()
    await store.due([DueRead(0, CURSOR_MIN, INSTANT_MAX, 1_000)])
    assert [next(iter(command)) for command in recorder.commands] == ["find"]


@pytest.mark.parametrize(
    ("fields", "indexes", "sorts"),
    [
        ({}, {"idx_timer_execute", "idx_history_execute"}, False),
        (
            {"sort": "created_at", "descending": True},
            {"idx_timer_created", "idx_history_created"},
            False,
        ),
        (
            {"after": ListCursor(NOW + 3, bytes(16), 0)},
            {"idx_timer_execute", "idx_history_execute"},
            False,
        ),
        ({"id_prefix": "3-29"}, {LOOKUP, ID}, True),
    ],
)
async def test_a_list_walks_one_index_of_each_collection(
    mongodb: MongoDatabase,
    store: MongoStore,
    recorder: Recorder,
    fields: dict[str, Any],
    indexes: set[str],
    sorts: bool,
) -> None:
    await store.select(ListQuery(namespace="default", num_shards=SHARDS, limit=20, **fields))
    (statement,) = _statements(recorder.commands)
    pipeline = statement["pipeline"]
    (other,) = [stage["$unionWith"] for stage in pipeline if "$unionWith" in stage]
    # What `explain` says of the other collection's part is shorter, so it is asked by itself.
    mine = pipeline[: next(n for n, stage in enumerate(pipeline) if "$unionWith" in stage)]
    parts = [
        statement | {"pipeline": mine},
        {"aggregate": other["coll"], "pipeline": other["pipeline"], "cursor": {}},
    ]
    assert set().union(*[_indexes(mongodb, part)[0] for part in parts]) == indexes
    for part in parts:
        explain = {"explain": part, "verbosity": "queryPlanner"}
        explained = mongodb.ask(explain, database=mongodb.name)
        assert ("SORT" in {stage["stage"] for stage in _stages(explained)}) == sorts
