"""What a MongoDB can do to us: it stops, is killed, steps down, refuses, is slow or alone."""

import asyncio
import gc
import re
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import trustme
from msgspec import structs
from pymongo import AsyncMongoClient
from pymongo.errors import (
    AutoReconnect,
    ConfigurationError,
    DuplicateKeyError,
    NetworkTimeout,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
)
from scripts.servers import Mongodb

from duetime.errors import SchemaTooNew, StoreError, StoreUnavailable
from duetime.model import CURSOR_MIN, INSTANT_MAX, Lease
from duetime.store import DueRead, ListQuery
from duetime.stores.mongodb import MongoStore, connection, schema
from duetime.stores.mongodb import store as store_module
from duetime.stores.mongodb.errors import translated
from duetime.stores.mongodb.rows import shard_key
from duetime.testing.conformance.timers import (
    NOW,
    a_timer,
    batch,
    claimed,
    everything,
    finished,
    key,
    put,
)
from tests.stores.mongodb_database import MongoDatabase
from tests.stores.proxy import Proxy

pytestmark = pytest.mark.server

PATIENCE_S = 30
IMPATIENT = "?serverSelectionTimeoutMS=500"


@pytest_asyncio.fixture
async def store(mongodb: MongoDatabase) -> AsyncIterator[MongoStore]:
    store = MongoStore(mongodb.url + IMPATIENT)
    await store.open()
    yield store
    await store.close()


@contextmanager
def failing(mongodb: MongoDatabase, command: str, times: int, **how: Any) -> Iterator[None]:
    """Of the store's commands of that name, the next ones fail."""
    data = {"failCommands": [command], "appName": connection.APP, **how}
    mongodb.fail("failCommand", {"times": times}, **data)
    try:
        yield
    finally:
        mongodb.fail("failCommand", "off")


async def until_put(store: MongoStore, id: str) -> None:
    """As the engine does it: claim again after a failed write."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await put(store, await claimed(store), a_timer(id))
            except StoreUnavailable:
                continue


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_a_restart_is_an_outage_that_ends_by_itself(
    mongodb_server: Mongodb, store: MongoStore, how: signal.Signals
) -> None:
    lease = await claimed(store)
    await put(store, lease, a_timer("before"))
    await asyncio.to_thread(mongodb_server.stop, how)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:\d+/test_mongodb_failures: "):
            await put(store, lease, a_timer("meanwhile"))
    await asyncio.to_thread(mongodb_server.start)
    await until_put(store, "after")
    assert {timer.id for timer in await everything(store)} == {"before", "after"}


async def test_what_is_under_way_when_it_is_killed_is_unknown_and_can_be_sent_again(
    mongodb_server: Mongodb, mongodb: MongoDatabase, store: MongoStore
) -> None:
    lease = await claimed(store)
    change = batch(lease, puts=[a_timer()], finished=[finished(a_timer("done"))])
    hold = mongodb.hold(store)
    assert hold is not None
    with hold as held:
        writing = asyncio.create_task(store.apply([change]))
        await held.reached()
        await asyncio.to_thread(mongodb_server.stop, signal.SIGKILL)
        with pytest.raises(StoreUnavailable):
            await writing
        await asyncio.to_thread(mongodb_server.start)
    assert await everything(store) == []
    assert await store.apply([change]) == frozenset()
    assert await everything(store) == [a_timer()]


async def test_of_what_was_acknowledged_before_a_step_down_or_a_kill_nothing_is_lost(
    mongodb_server: Mongodb, mongodb: MongoDatabase, store: MongoStore
) -> None:
    leases = dict(enumerate(await store.claim(range(4), owner="node-a", at=NOW)))
    acknowledged: dict[int, list[str]] = {shard: [] for shard in leases}
    done = False

    async def write(shard: int) -> None:
        number = 0
        while not done:
            number += 1
            timer = a_timer(f"{shard}-{number}", shard=shard, at=NOW + number)
            with suppress(StoreUnavailable):
                assert await store.apply([batch(leases[shard], puts=[timer])]) == frozenset()
                acknowledged[shard].append(timer.id)

    async def until_more() -> None:
        before = {shard: len(ids) for shard, ids in acknowledged.items()}
        async with asyncio.timeout(PATIENCE_S):
            while any(len(ids) < before[shard] + 20 for shard, ids in acknowledged.items()):
                await asyncio.sleep(0.01)

    writing = [asyncio.create_task(write(shard)) for shard in leases]
    await until_more()
    step_down = {"replSetStepDown": 1, "secondaryCatchUpPeriodSecs": 0, "force": True}
    await asyncio.to_thread(mongodb.ask, step_down)
    await until_more()
    await asyncio.to_thread(mongodb_server.stop, signal.SIGKILL)
    await asyncio.to_thread(mongodb_server.start)
    await until_more()
    done = True
    await asyncio.gather(*writing)
    for shard, ids in acknowledged.items():
        assert set(ids) <= {timer.id for timer in await everything(store, shard)}


async def test_a_commit_whose_answer_was_lost_is_asked_for_again(
    mongodb: MongoDatabase, store: MongoStore
) -> None:
    lease = await claimed(store)
    with failing(mongodb, "commitTransaction", 2, closeConnection=True):
        await put(store, lease, a_timer())
    assert await everything(store) == [a_timer()]


async def test_a_write_whose_every_answer_is_lost_may_have_taken_effect(
    mongodb: MongoDatabase,
) -> None:
    async with Proxy(mongodb.url) as proxy:
        store = MongoStore(f"{proxy.url}?directConnection=true&timeoutMS=1500")
        await store.open()
        lease = await claimed(store)
        change = batch(lease, puts=[a_timer()], finished=[finished(a_timer("done"))])
        with failing(mongodb, "commitTransaction", 1, blockConnection=True, blockTimeMS=300):
            writing = asyncio.create_task(store.apply([change]))
            await asyncio.to_thread(mongodb.wait_for, "failCommand")
            proxy.swallows_answers = True
            with pytest.raises(StoreUnavailable):
                await writing
        proxy.swallows_answers = False
        proxy.cut()
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    assert await store.apply([change]) == frozenset()
                    break
                except StoreUnavailable:
                    continue
        assert await everything(store) == [a_timer()]
        assert await store.purge("default", before=INSTANT_MAX, limit=10) == 1
        await store.close()


@pytest.mark.parametrize("command", ["bulkWrite", "commitTransaction"])
async def test_a_write_that_others_were_in_the_way_of_is_tried_again(
    mongodb: MongoDatabase, store: MongoStore, command: str
) -> None:
    lease = await claimed(store)
    with failing(mongodb, command, 5, errorCode=112, errorLabels=["TransientTransactionError"]):
        await put(store, lease, a_timer())
    assert await everything(store) == [a_timer()]


@pytest.mark.parametrize("command", ["bulkWrite", "commitTransaction"])
async def test_it_is_not_tried_for_ever(mongodb: MongoDatabase, command: str) -> None:
    store = MongoStore(mongodb.url + "?timeoutMS=1000")
    await store.open()
    lease = await claimed(store)
    label = ["TransientTransactionError"]
    with failing(mongodb, command, 10_000, errorCode=112, errorLabels=label):
        begun = time.monotonic()
        with pytest.raises(StoreUnavailable):
            await put(store, lease, a_timer())
        assert time.monotonic() - begun < PATIENCE_S
    assert await everything(store) == []
    await store.close()


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (13, "this user lacks a right"),
        (388, "a write is too large for its cache"),
        (14031, "its disk is full"),
    ],
)
async def test_an_outage_is_named_and_undoes_the_write(
    mongodb: MongoDatabase, store: MongoStore, code: int, reason: str
) -> None:
    lease = await claimed(store)
    with failing(mongodb, "bulkWrite", 1, errorCode=code, errorLabels=[]):
        with pytest.raises(StoreUnavailable, match=rf"failures: {reason} \({code}\)") as caught:
            await put(store, lease, a_timer())
        assert isinstance(caught.value.__cause__, PyMongoError)
        await put(store, lease, a_timer("next"))
    assert await everything(store) == [a_timer("next")]


async def test_a_transaction_that_a_dead_process_left_behind_is_ended(
    mongodb: MongoDatabase, store: MongoStore
) -> None:
    """The server itself would keep it, and what it has written, for a minute."""
    await claimed(store)
    dead: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(mongodb.url, appname=connection.APP)
    async with dead, dead.start_session() as session:
        await session.start_transaction()
        await dead[mongodb.name].timers.update_one(
            {"_id": shard_key(0)}, {"$inc": {"shard_writes": 1}}, session=session
        )
        async with asyncio.timeout(PATIENCE_S):
            lease = await claimed(store)
        await put(store, lease, a_timer())


async def test_a_claim_has_its_way_against_those_who_write_without_a_pause(
    mongodb: MongoDatabase, store: MongoStore
) -> None:
    leases = await store.claim(range(8), owner="node-a", at=NOW)
    lost: list[frozenset[int]] = []

    async def write(mine: list[Lease]) -> None:
        for number in count():
            timers = [a_timer(f"t-{n}", at=NOW + number) for n in range(50)]
            batches = [
                batch(it, puts=[structs.replace(t, shard=it.shard) for t in timers]) for it in mine
            ]
            lost.append(await store.apply(batches))
            if lost[-1]:
                return

    rival = MongoStore(mongodb.url)
    await rival.open()
    writing = [asyncio.create_task(write(leases[first::4])) for first in range(4)]
    async with asyncio.timeout(PATIENCE_S):
        while len(lost) < 20:
            await asyncio.sleep(0.01)
        taken = await rival.claim(range(8), owner="node-b", at=NOW)
        await asyncio.gather(*writing)
    assert [lease.version for lease in taken] == [2] * 8
    await rival.close()


async def test_a_closing_store_finishes_what_is_under_way(
    mongodb: MongoDatabase, store: MongoStore
) -> None:
    lease = await claimed(store)
    writing = [
        asyncio.create_task(store.apply([batch(lease, puts=[a_timer(f"t-{n}")])])) for n in range(3)
    ]
    await asyncio.sleep(0)
    await store.close()
    assert [task.result() for task in writing] == [frozenset()] * 3
    again = MongoStore(mongodb.url)
    await again.open()
    assert len(await everything(again)) == 3
    await again.close()


async def test_lists_that_take_long_leave_connections_for_what_timers_wait_for(
    mongodb: MongoDatabase,
) -> None:
    store = MongoStore(f"{mongodb.url}?maxPoolSize=4")
    await store.open()
    lease = await claimed(store)
    with failing(mongodb, "aggregate", 1, blockConnection=True, blockTimeMS=1_000):
        query = ListQuery(namespace="default", num_shards=1)
        lists = [asyncio.create_task(store.select(query)) for _ in range(20)]
        await asyncio.to_thread(mongodb.wait_for, "failCommand")
        await put(store, lease, a_timer())
        assert await everything(store) == [a_timer()]
        assert not any(task.done() for task in lists)
        await asyncio.gather(*lists)
    await store.close()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda url: url.replace("duetime:", "nobody:"), r"it refuses this user or password \(18"),
        (lambda url: url.replace("@", "x@"), r"it refuses this user or password \(18\)"),
        (lambda url: re.sub(r"/test_\w+", "/no_db?authSource=test_mongodb_failures", url), "right"),
        (lambda url: url.replace("127.0.0.1", "127.0.0.2"), "no server that takes writes was foun"),
        (lambda url: url + "?replicaSet=other", "no server that takes writes was found"),
    ],
)
async def test_why_it_cannot_be_opened_is_one_line_without_the_password(
    mongodb: MongoDatabase, change: Callable[[str], str], reason: str
) -> None:
    url = change(mongodb.url)
    store = MongoStore(f"{url}{'&' if '?' in url else '?'}serverSelectionTimeoutMS=500")
    password = mongodb.url.split(":")[2].split("@")[0]
    with pytest.raises(StoreUnavailable, match=reason) as caught:
        await store.open()
    assert password not in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 400


async def test_a_standalone_server_is_refused_with_the_reason(
    mongodb_server: Mongodb, tmp_path: Path
) -> None:
    class Standalone(Mongodb):
        replica_set = False

    server = Standalone(tmp_path)
    await asyncio.to_thread(server.start)
    try:
        with pytest.raises(StoreError, match="it is a standalone server, which has no transac"):
            await MongoStore(server.root_url).open()
    finally:
        await asyncio.to_thread(server.delete)


# Where a handshake fails, the driver forgets to close the socket.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_tls_is_spoken_as_the_url_says_and_only_with_who_can_prove_his_name(
    tmp_path: Path, mongodb_server: Mongodb
) -> None:
    ours, others = trustme.CA(), trustme.CA()
    key = tmp_path / "server.pem"
    ours.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(key))
    ours.cert_pem.write_to_path(str(tmp_path / "ours.pem"))
    others.cert_pem.write_to_path(str(tmp_path / "others.pem"))

    class WithTls(Mongodb):
        options = (
            "--tlsMode=preferTLS",
            f"--tlsCertificateKeyFile={key}",
            "--tlsAllowConnectionsWithoutCertificates",
            f"--tlsCAFile={tmp_path / 'ours.pem'}",
        )

    server = WithTls(tmp_path / "server")
    await asyncio.to_thread(server.start)
    try:
        url = f"{server.url}{IMPATIENT}&tls=true&tlsCAFile={tmp_path}"
        store = MongoStore(f"{url}/ours.pem")
        await store.open()
        await put(store, await claimed(store), a_timer())
        await store.close()
        with pytest.raises(StoreUnavailable, match="certificate verify failed"):
            await MongoStore(f"{url}/others.pem").open()
    finally:
        await asyncio.to_thread(server.delete)
        gc.collect()


async def test_an_old_server_is_refused(
    mongodb: MongoDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "WIRE_VERSION_MIN", 99)
    with pytest.raises(StoreError, match=r"its MongoDB is too old: 8\.0 is needed"):
        await MongoStore(mongodb.url).open()


async def test_a_newer_schema_is_refused_and_left_alone(mongodb: MongoDatabase) -> None:
    def set_version(version: int) -> None:
        change = {"q": {"_id": "version"}, "u": {"version": version}}
        mongodb.ask({"update": "duetime_schema", "updates": [change]}, database=mongodb.name)

    set_version(99)
    with pytest.raises(SchemaTooNew) as caught:
        await MongoStore(mongodb.url).open()
    assert (caught.value.found, caught.value.known) == (99, len(schema.MIGRATIONS))
    set_version(len(schema.MIGRATIONS))


async def test_nodes_that_start_together_on_a_new_database_all_open(
    mongodb_server: Mongodb,
) -> None:
    database = MongoDatabase(mongodb_server, "started_together")
    stores = [MongoStore(database.url) for _ in range(6)]
    await asyncio.gather(*[store.open() for store in stores])
    claims = await asyncio.gather(*[claimed(store) for store in stores])
    await asyncio.gather(*[store.close() for store in stores])
    assert sorted(lease.version for lease in claims) == [1, 2, 3, 4, 5, 6]


async def test_what_is_too_heavy_for_one_transaction_goes_in_several_shard_by_shard(
    store: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "WRITE_BYTES_MAX", 2_500)
    leases = await store.claim(range(4), owner="node-a", at=NOW)
    await store.claim([1], owner="node-b", at=NOW)
    payload = b'"' + b"x" * 998 + b'"'
    timers = [
        [a_timer(f"t-{n}", shard=shard, at=NOW + n, payload=payload) for n in range(shard + 1)]
        for shard in range(4)
    ]
    batches = [batch(lease, puts=mine) for lease, mine in zip(leases, timers, strict=True)]
    assert [len(piece) for piece in store_module._pieces(batches)] == [1, 1, 1, 1]
    assert [len(piece) for piece in store_module._pieces(batches[:1] * 5)] == [2, 2, 1]
    assert await store.apply(batches) == {1}
    assert [await everything(store, shard) for shard in range(4)] == [
        timers[0],
        [],
        timers[2],
        timers[3],
    ]


async def test_more_than_a_message_holds_is_one_transaction_still(store: MongoStore) -> None:
    lease = await claimed(store)
    payload = b'"' + b"x" * 5_000_000 + b'"'
    heavy = [a_timer(f"t-{n}", at=NOW + n, payload=payload) for n in range(12)]
    await put(store, lease, *heavy)
    assert [timer.id for timer in await everything(store)] == [timer.id for timer in heavy]
    old, _ = lease, await claimed(store)
    assert await store.apply([batch(old, removes=heavy)]) == {0}
    assert len(await everything(store)) == 12


async def test_a_timer_that_is_larger_than_a_document_is_refused(store: MongoStore) -> None:
    lease = await claimed(store)
    huge = a_timer(payload=b'"' + b"x" * 17_000_000 + b'"')
    with pytest.raises(StoreError, match="a timer is too large for MongoDB"):
        await put(store, lease, huge)
    assert await everything(store) == []


async def test_pages_of_heavy_timers_are_cut_short(
    store: MongoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "DUE_BYTES_MAX", 20_000)
    leases = await store.claim([0, 1], owner="node-a", at=NOW)
    payload = b'"' + b"x" * 998 + b'"'
    for lease in leases:
        timers = [
            a_timer(f"t-{n}", shard=lease.shard, at=NOW + n, payload=payload) for n in range(30)
        ]
        await put(store, lease, *timers)
    pages = await store.due([DueRead(shard, CURSOR_MIN, INSTANT_MAX, 100) for shard in (0, 1)])
    assert [(len(page.timers), page.more) for page in pages] == [(10, True), (10, True)]


async def test_a_finished_timer_that_is_recorded_already_costs_the_others_nothing(
    store: MongoStore,
) -> None:
    lease = await claimed(store)
    first, second = finished(a_timer("first")), finished(a_timer("second"))
    await store.apply([batch(lease, finished=[first])])
    again = batch(lease, puts=[a_timer("new")], finished=[first, second])
    assert await store.apply([again]) == frozenset()
    assert await everything(store) == [a_timer("new")]
    assert None not in await store.outcomes([key(first.timer), key(second.timer)])


async def test_rows_are_as_an_operator_expects_them(
    mongodb: MongoDatabase, store: MongoStore
) -> None:
    await put(store, await claimed(store, 7), a_timer(shard=7, payload=b'{"a": 1}', attempts=1))
    find = {"find": "timers", "filter": {"_id.shard_id": 7}, "sort": {"_id": 1}}
    shard, timer = mongodb.ask(find, database=mongodb.name)["cursor"]["firstBatch"]
    assert (shard["_id"]["row_type"], str(shard["_id"]["timer_execute_at"])) == (
        1,
        "1970-01-01 00:00:01",
    )
    assert (shard["shard_version"], shard["shard_owner_id"]) == (1, "node-a")
    assert str(timer["_id"]["timer_execute_at"]) == "2027-01-15 08:00:00"
    assert (timer["_id"]["timer_uuid"].subtype, timer["timer_payload"]) == (4, '{"a": 1}')


@pytest.mark.parametrize(
    ("error", "type_", "reason"),
    [
        (AutoReconnect("connection closed"), StoreUnavailable, "the connection was lost"),
        (NetworkTimeout("timed out"), StoreUnavailable, "it did not answer in time"),
        (
            ServerSelectionTimeoutError("a: gone (configured timeouts: x)"),
            StoreUnavailable,
            "a: go",
        ),
        (ConfigurationError("No such DNS name"), StoreUnavailable, "No such DNS name"),
        (OperationFailure("'secret'", 2, {"codeName": "BadValue"}), StoreError, r"BadValue, 2"),
        (DuplicateKeyError("dup key: 'secret'", 11000, {}), StoreError, "DuplicateKeyError, 11000"),
    ],
)
def test_an_error_of_the_driver_becomes_the_stores(
    error: Exception, type_: type[StoreError], reason: str
) -> None:
    mine = translated(error, "db.example/timers")
    assert type(mine) is type_
    assert str(mine).startswith("db.example/timers: ")
    assert reason in str(mine)
    assert "secret" not in str(mine)
