"""What a DynamoDB can do to us: it throttles, refuses, loses answers, stops, is half done."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from scripts.servers import Dynamodb

from duetime.clock import SystemClock
from duetime.errors import InvalidInput, SchemaTooNew, StoreError, StoreUnavailable
from duetime.model import CURSOR_MIN, INSTANT_MAX, Lease
from duetime.store import DueRead, ListQuery
from duetime.stores.dynamodb import DynamoStore, client, tables
from duetime.testing.conformance.timers import (
    NOW,
    a_timer,
    as_kept,
    batch,
    claimed,
    everything,
    finished,
    key,
    put,
)
from tests.stores.dynamodb_database import (
    Ask,
    Body,
    DynamoDatabase,
    Proxy,
    losing_answers,
    refusing,
)

pytestmark = pytest.mark.server


@pytest_asyncio.fixture
async def proxy(dynamodb: DynamoDatabase) -> AsyncIterator[Proxy]:
    async with Proxy(dynamodb.url) as proxy:
        yield proxy


@pytest_asyncio.fixture
async def store(proxy: Proxy) -> AsyncIterator[DynamoStore]:
    store = DynamoStore(proxy.url, chance=lambda: 0.001)  # Waits little between tries.
    await store.open()
    yield store
    await store.close()


@pytest_asyncio.fixture
async def rival(dynamodb: DynamoDatabase, store: DynamoStore) -> AsyncIterator[DynamoStore]:
    rival = DynamoStore(dynamodb.url)
    await rival.open()
    yield rival
    await rival.close()


PASSING = [
    ("ProvisionedThroughputExceededException", 400, "it is throttled"),
    ("ThrottlingException", 400, "it is throttled"),
    ("RequestLimitExceeded", 400, "it is throttled"),
    ("TransactionInProgressException", 400, "the same write is still under way"),
    ("InternalServerError", 500, "it failed"),
    ("ServiceUnavailable", 503, "it cannot serve now"),
    ("SomethingNew", 500, "it failed"),
]


@pytest.mark.parametrize(("code", "status", "reason"), PASSING)
async def test_what_passes_by_is_tried_again_and_not_for_ever(
    proxy: Proxy, store: DynamoStore, code: str, status: int, reason: str
) -> None:
    lease = await claimed(store)
    proxy.rules["TransactWriteItems"] = refusing(client.TRIES - 1, code, status=status)
    await put(store, lease, a_timer())
    proxy.rules["TransactWriteItems"] = refusing(client.TRIES, code, status=status)
    with pytest.raises(StoreUnavailable, match=rf"test_\d+: {reason} \({code}\)"):
        await put(store, lease, a_timer("b"))
    assert await everything(store) == [a_timer()]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("TransactionConflict", "other writes were in its way"),
        ("ThrottlingError", "it is throttled"),
        ("ProvisionedThroughputExceeded", "it is throttled"),
    ],
)
async def test_a_transaction_canceled_for_a_passing_reason_is_tried_again(
    proxy: Proxy, store: DynamoStore, code: str, reason: str
) -> None:
    lease = await claimed(store)
    canceled: dict[str, Any] = {"CancellationReasons": [{"Code": "None"}, {"Code": code}]}
    again = refusing(client.TRIES - 1, "TransactionCanceledException", **canceled)
    proxy.rules["TransactWriteItems"] = again
    await put(store, lease, a_timer())
    never = refusing(client.TRIES, "TransactionCanceledException", **canceled)
    proxy.rules["TransactWriteItems"] = never
    with pytest.raises(StoreUnavailable, match=reason):
        await put(store, lease, a_timer("b"))
    assert await everything(store) == [a_timer()]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("UnrecognizedClientException", "it refuses these credentials"),
        ("InvalidSignatureException", "it refuses these credentials"),
        ("ExpiredTokenException", "the credentials have expired"),
        ("AccessDeniedException", "this identity lacks a right"),
        ("ResourceNotFoundException", "a table is missing"),
        ("ItemCollectionSizeLimitExceededException", "a shard has reached the 10 GB"),
    ],
)
async def test_what_does_not_pass_by_is_named_at_once_and_echoes_no_secret(
    proxy: Proxy, store: DynamoStore, code: str, reason: str
) -> None:
    lease = await claimed(store)
    proxy.asked.clear()
    proxy.rules["TransactWriteItems"] = refusing(1, code)
    with pytest.raises(StoreUnavailable, match=reason) as caught:
        await put(store, lease, a_timer())
    assert proxy.asked["TransactWriteItems"] == 1
    secret = proxy.url.partition("@")[0].rpartition(":")[2]
    assert secret not in str(caught.value)


async def test_what_it_says_of_a_request_that_it_does_not_understand_stays_out(
    proxy: Proxy, store: DynamoStore
) -> None:
    proxy.rules["Query"] = refusing(1, "ValidationException")
    with pytest.raises(StoreError, match=r"it refuses a request \(ValidationException\)") as caught:
        await store.shards()
    assert "as the test asked" not in str(caught.value)


# -- answers that are lost ------------------------------------------------------------------


async def test_a_write_whose_answer_is_lost_is_sent_again_and_happens_once(
    proxy: Proxy, store: DynamoStore
) -> None:
    lease = await claimed(store)
    proxy.rules["TransactWriteItems"] = losing_answers(2)
    change = batch(lease, puts=[a_timer()], finished=[finished(a_timer("done"))])
    assert await store.apply([change]) == frozenset()
    assert await everything(store) == [a_timer()]
    assert await store.purge("default", before=INSTANT_MAX, limit=10) == 1


async def test_a_claim_meanwhile_does_not_make_a_write_that_happened_look_refused(
    proxy: Proxy, store: DynamoStore, rival: DynamoStore
) -> None:
    """Sent again it would meet the newer lease, but for the token that it was sent with."""
    lease = await claimed(store)
    proxy.rules["TransactWriteItems"] = losing_answers(1, then=lambda: claimed(rival))
    assert await store.apply([batch(lease, puts=[a_timer()])]) == frozenset()
    assert await everything(rival) == [a_timer()]
    assert await store.apply([batch(lease)]) == {0}


async def test_a_write_of_which_nothing_is_ever_heard_can_be_sent_again(
    proxy: Proxy, store: DynamoStore
) -> None:
    lease = await claimed(store)
    proxy.rules["TransactWriteItems"] = losing_answers(client.TRIES)
    change = batch(lease, puts=[a_timer()], finished=[finished(a_timer("done"))])
    with pytest.raises(StoreUnavailable, match="it cannot be reached"):
        await store.apply([change])
    assert await store.apply([change]) == frozenset()
    assert await everything(store) == [a_timer()]
    assert await store.purge("default", before=INSTANT_MAX, limit=10) == 1


async def test_claims_and_documents_whose_answers_are_lost_count_once(
    proxy: Proxy, store: DynamoStore
) -> None:
    proxy.rules["TransactWriteItems"] = losing_answers(1)
    assert (await claimed(store)).version == 1
    proxy.rules["TransactWriteItems"] = losing_answers(1)
    assert await store.write_document("kind", "name", b"{}", expected_version=0)
    (document,) = await store.documents("kind")
    assert document.version == 1
    proxy.rules["TransactWriteItems"] = losing_answers(1)
    assert await store.delete_document("kind", "name", expected_version=1)


# -- what is done in parts ------------------------------------------------------------------


async def test_a_batch_of_several_parts_keeps_what_concerns_a_timer_in_one(
    proxy: Proxy, store: DynamoStore
) -> None:
    lease = await claimed(store)
    timers = [a_timer(f"t-{n:03}", at=NOW + n) for n in range(250)]
    await put(store, lease, *timers)
    parts: list[set[str]] = []

    async def watch(body: Body, ask: Ask) -> Body:
        fence, *actions = body["TransactItems"]
        assert fence["ConditionCheck"]["Key"]["sort_key"]["S"] == "SHARD"
        assert len(actions) <= 99
        removed = [it["Delete"]["Key"]["sort_key"]["S"] for it in actions if "Delete" in it]
        recorded = [it["Put"]["Item"]["timer_id"]["S"] for it in actions if "Put" in it]
        assert removed == [f"TIMER#default#{name}" for name in recorded]
        parts.append(set(recorded))
        return await ask(body)

    proxy.rules["TransactWriteItems"] = watch
    change = batch(lease, removes=timers, finished=[finished(timer) for timer in timers])
    assert await store.apply([change]) == frozenset()
    assert sorted(map(len, parts)) == [5, 49, 49, 49, 49, 49]
    assert await everything(store) == []


async def test_a_lease_lost_between_two_parts_leaves_whole_timers_and_an_unknown_outcome(
    proxy: Proxy, store: DynamoStore, rival: DynamoStore
) -> None:
    """`apply` must not say that nothing took effect; what it says is what a lost answer says."""
    lease = await claimed(store)
    timers = [a_timer(f"t-{n:03}", at=NOW + n) for n in range(120)]
    await put(store, lease, *timers)
    newer: list[Lease] = []

    async def claim_after_the_first(body: Body, ask: Ask) -> Body:
        answer = await ask(body)
        if not newer:
            newer.append(await claimed(rival))
        return answer

    proxy.rules["TransactWriteItems"] = claim_after_the_first
    ends = [finished(timer) for timer in timers]
    with pytest.raises(StoreUnavailable, match="shard 0 was claimed by another in the middle"):
        await store.apply([batch(lease, removes=timers, finished=ends)])
    left = await everything(rival)
    outcomes = await rival.outcomes([key(timer) for timer in timers])
    ended = [outcome.timer.id for outcome in outcomes if outcome is not None]
    assert 0 < len(left) < len(timers)
    assert sorted(ended + [timer.id for timer in left]) == [timer.id for timer in timers]
    again = batch(newer[0], removes=timers, finished=ends)
    assert await rival.apply([again]) == frozenset()
    assert await everything(rival) == []
    assert await rival.outcomes([key(timer) for timer in timers]) == [as_kept(it) for it in ends]


async def test_an_outage_between_two_parts_loses_nothing(proxy: Proxy, store: DynamoStore) -> None:
    lease = await claimed(store)
    timers = [a_timer(f"t-{n:03}", at=NOW + n) for n in range(150)]
    asked = 0

    async def fail_from_the_second_on(body: Body, ask: Ask) -> Body:
        nonlocal asked
        asked += 1
        if asked > 1:
            return await refusing(1, "AccessDeniedException")(body, ask)
        return await ask(body)

    proxy.rules["TransactWriteItems"] = fail_from_the_second_on
    with pytest.raises(StoreUnavailable):
        await store.apply([batch(lease, puts=timers)])
    assert await everything(store) == timers[:99]
    proxy.rules.clear()
    await put(store, lease, *timers)
    assert await everything(store) == timers


async def test_one_shards_failure_does_not_leave_another_ones_write_running(
    proxy: Proxy, store: DynamoStore
) -> None:
    leases = await store.claim([0, 1], owner="node-a", at=NOW)
    arrived = asyncio.Event()

    async def rule(body: Body, ask: Ask) -> Body:
        if body["TransactItems"][0]["ConditionCheck"]["Key"]["shard_id"]["N"] == "0":
            return await refusing(1, "AccessDeniedException")(body, ask)
        answer = await ask(body)
        arrived.set()
        return answer

    proxy.rules["TransactWriteItems"] = rule
    with pytest.raises(StoreUnavailable):
        await store.apply(
            [batch(lease, puts=[a_timer("a", shard=lease.shard)]) for lease in leases]
        )
    assert arrived.is_set()


async def test_a_timer_that_has_moved_stays_and_the_rest_of_its_batch_happens(
    store: DynamoStore,
) -> None:
    lease = await claimed(store)
    old = [a_timer(f"t-{n}", at=NOW + n) for n in range(10)]
    await put(store, lease, *old)
    moved = [a_timer(timer.id, at=timer.execute_at + 99) for timer in old[:3]]
    await put(store, lease, *moved)
    ends = [finished(timer) for timer in old]
    new = a_timer("new", at=NOW + 999)
    assert await store.apply([batch(lease, puts=[new], removes=old, finished=ends)]) == frozenset()
    assert await everything(store) == [*moved, new]
    assert None not in await store.outcomes([key(timer) for timer in old])


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
async def test_heavy_timers_are_sent_in_requests_of_about_a_megabyte(
    proxy: Proxy, store: DynamoStore
) -> None:
    lease = await claimed(store)
    for letter in ("x", '\\"', "\u00fc", "\U0001f600"):
        bytes_max = store.traits.payload_bytes_max
        assert bytes_max is not None
        heavy = f'"{letter * ((bytes_max - 2) // len(letter.encode()))}"'.encode()
        timers = [a_timer(f"t-{n}", payload=heavy, metadata=heavy) for n in range(3)]
        await put(store, lease, *timers)
        assert await store.get([key(timer) for timer in timers]) == timers
    assert proxy.bytes_max < 1_200_000


async def test_keys_and_deletions_that_were_left_undone_are_asked_for_again(
    proxy: Proxy, store: DynamoStore
) -> None:
    lease = await claimed(store)
    timers = [a_timer(f"t-{n:03}", at=NOW + n) for n in range(150)]
    ends = [finished(timer, at=NOW + n) for n, timer in enumerate(timers)]
    await store.apply([batch(lease, puts=timers, finished=ends)])
    idle = 0

    async def get_half(body: Body, ask: Ask) -> Body:
        nonlocal idle
        idle += 1
        ((table, wanted),) = body["RequestItems"].items()
        some = wanted["Keys"][: len(wanted["Keys"]) // 2 if idle % 3 else 0] or wanted["Keys"][:1]
        if idle % 3 == 0:  # Now and then, nothing is done.
            return {"Responses": {}, "UnprocessedKeys": body["RequestItems"]}
        answer = await ask({"RequestItems": {table: wanted | {"Keys": some}}})
        rest = wanted["Keys"][len(some) :]
        undone = {table: wanted | {"Keys": rest}} if rest else {}
        return answer | {"UnprocessedKeys": undone}

    async def delete_half(body: Body, ask: Ask) -> Body:
        ((table, wanted),) = body["RequestItems"].items()
        half = (len(wanted) + 1) // 2
        await ask({"RequestItems": {table: wanted[:half]}})
        return {"UnprocessedItems": {table: wanted[half:]} if wanted[half:] else {}}

    proxy.rules["BatchGetItem"] = get_half
    proxy.rules["BatchWriteItem"] = delete_half
    assert await store.get([key(timer) for timer in timers]) == timers
    assert await store.purge("default", before=NOW + 99, limit=1_000) == 100
    outcomes = await store.outcomes([key(timer) for timer in timers])
    assert [outcome is None for outcome in outcomes] == [True] * 100 + [False] * 50


async def test_keys_that_are_never_answered_are_given_up(proxy: Proxy, store: DynamoStore) -> None:
    async def nothing(body: Body, ask: Ask) -> Body:
        return {"Responses": {}, "UnprocessedKeys": body["RequestItems"]}

    proxy.rules["BatchGetItem"] = nothing
    with pytest.raises(StoreUnavailable, match="it is throttled"):
        await store.get([key(a_timer())])


# -- outages --------------------------------------------------------------------------------


async def test_a_restart_is_an_outage_that_ends_by_itself(
    dynamodb_server: Dynamodb, rival: DynamoStore
) -> None:
    lease = await claimed(rival)
    await put(rival, lease, a_timer("before"))
    await asyncio.to_thread(dynamodb_server.stop)
    with pytest.raises(StoreUnavailable, match="it cannot be reached"):
        await put(rival, lease, a_timer("meanwhile"))
    await asyncio.to_thread(dynamodb_server.start)
    await put(rival, lease, a_timer("after"))
    assert {timer.id for timer in await everything(rival)} == {"before", "after"}


async def test_a_server_that_answers_no_more_is_given_up_on(
    dynamodb_server: Dynamodb, rival: DynamoStore, dynamodb: DynamoDatabase
) -> None:
    store = DynamoStore(dynamodb.url + "&timeout=1s")
    await store.open()
    pid = dynamodb_server.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(StoreUnavailable, match="it did not answer in time"):
            await store.now()
    finally:
        os.kill(pid, signal.SIGCONT)
    assert await store.now() > 0
    await store.close()


async def test_closing_waits_for_what_is_under_way(proxy: Proxy, store: DynamoStore) -> None:
    lease = await claimed(store)
    go = asyncio.Event()

    async def wait(body: Body, ask: Ask) -> Body:
        await go.wait()
        return await ask(body)

    proxy.rules["TransactWriteItems"] = wait
    writing = asyncio.create_task(put(store, lease, *(a_timer(f"t-{n}") for n in range(150))))
    while proxy.asked["TransactWriteItems"] < 3:  # Two before: the version's and the claim.
        await asyncio.sleep(0)
    closing = asyncio.create_task(store.close())
    go.set()
    await writing
    await closing


# -- tables ---------------------------------------------------------------------------------


async def test_nodes_that_start_together_make_the_tables_once(dynamodb: DynamoDatabase) -> None:
    stores = [DynamoStore(dynamodb.url) for _ in range(5)]
    await asyncio.gather(*[store.open() for store in stores])
    await claimed(stores[0])
    assert [len(await store.shards()) for store in stores] == [1] * 5
    await asyncio.gather(*[store.close() for store in stores])


async def test_where_nothing_is_missing_no_right_on_tables_is_needed(
    proxy: Proxy, store: DynamoStore
) -> None:
    proxy.asked.clear()
    again = DynamoStore(proxy.url)
    await again.open()
    await again.close()
    assert proxy.asked == {"GetItem": 1}


async def test_tables_that_are_not_ready_are_waited_for(
    dynamodb: DynamoDatabase, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "POLL_S", 0.001)
    looks = 0

    async def not_yet(body: Body, ask: Ask) -> Body:
        nonlocal looks
        looks += 1
        answer = await ask(body)
        if looks == 1:
            return await refusing(1, "ResourceNotFoundException")(body, ask)
        if looks == 2:
            answer["Table"]["TableStatus"] = "CREATING"
        if body["TableName"].endswith("history") and looks < 6:
            answer["Table"]["GlobalSecondaryIndexes"][0]["IndexStatus"] = "CREATING"
        return answer

    proxy.rules["DescribeTable"] = not_yet
    store = DynamoStore(proxy.url)
    await store.open()
    assert await store.shards() == []
    assert looks == 7
    await store.close()


async def test_a_newer_schema_is_refused(
    rival: DynamoStore, dynamodb: DynamoDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "VERSION", 0)
    store = DynamoStore(dynamodb.url)
    with pytest.raises(SchemaTooNew):
        await store.open()
    with pytest.raises(StoreUnavailable, match="is not open"):
        await store.now()


# -- what it costs, and its limits ------------------------------------------------------------


async def test_a_thousand_timers_of_a_shard_take_few_requests(
    proxy: Proxy, store: DynamoStore
) -> None:
    lease = await claimed(store)
    timers = [a_timer(f"t-{n:03}", at=NOW + n) for n in range(1_000)]
    proxy.asked.clear()
    await put(store, lease, *timers)
    assert proxy.asked == {"TransactWriteItems": 11}
    proxy.asked.clear()
    (page,) = await store.due([DueRead(0, CURSOR_MIN, INSTANT_MAX, 1_000)])
    assert page.timers == timers
    assert proxy.asked == {"Query": 2}
    proxy.asked.clear()
    ends = [finished(timer) for timer in timers]
    await store.apply([batch(lease, removes=timers, finished=ends)])
    assert proxy.asked == {"TransactWriteItems": 21}


async def test_the_clock_is_the_date_of_an_answer_and_half_a_second(
    proxy: Proxy, store: DynamoStore
) -> None:
    clock = SystemClock()
    before = clock.now()
    there = await store.now()
    assert before - 500 <= there <= clock.now() + 500
    assert there % 1_000 == 500
    assert store.traits.clock_step_ms == 1_000
    proxy.date = "soon"
    with pytest.raises(StoreUnavailable, match="it does not say what time it is"):
        await store.now()


async def test_a_shard_that_is_nearly_full_is_told_once(
    proxy: Proxy, store: DynamoStore, caplog: pytest.LogCaptureFixture
) -> None:
    lease = await claimed(store)

    async def large(body: Body, ask: Ask) -> Body:
        assert body["ReturnItemCollectionMetrics"] == "SIZE"
        metric = {"ItemCollectionKey": {"shard_id": {"N": "0"}}, "SizeEstimateRangeGB": [8.0, 9.0]}
        return await ask(body) | {"ItemCollectionMetrics": {"timers": [metric]}}

    proxy.rules["TransactWriteItems"] = large
    for _ in range(2):
        await put(store, lease, a_timer())
    (record,) = [record for record in caplog.records if record.message == "shard is nearly full"]
    assert (record.__dict__["shard"], record.__dict__["gb"]) == ("0", 9.0)


async def test_a_list_is_filled_up_where_timers_end_while_it_is_read(
    proxy: Proxy, store: DynamoStore
) -> None:
    lease = await claimed(store)
    timers = [a_timer(f"t-{n:03}", at=NOW + n) for n in range(40)]
    await put(store, lease, *timers)

    async def end_some_first(body: Body, ask: Ask) -> Body:
        proxy.rules.clear()
        await store.apply([batch(lease, removes=timers[:15])])
        return await ask(body)

    for limit in (10, 20):
        await put(store, lease, *timers)
        proxy.rules["BatchGetItem"] = end_some_first
        query = ListQuery(namespace="default", num_shards=1, limit=limit)
        listing = await store.select(query)
        assert listing.entries[0] == timers[15]
        assert listing.entries == timers[15 : 15 + limit]


async def test_a_list_ends_where_nothing_better_can_come(proxy: Proxy, store: DynamoStore) -> None:
    lease = await claimed(store)
    await put(store, lease, *(a_timer(f"t-{n:04}", at=NOW + n) for n in range(1_500)))
    proxy.asked.clear()
    for descending in (False, True):
        query = ListQuery(namespace="default", num_shards=1, limit=50, descending=descending)
        assert len((await store.select(query)).entries) == 50
    # Each: the shard's index, the parts of history, and the timers themselves.
    assert proxy.asked == {"Query": 2 * (1 + 16), "BatchGetItem": 2}


async def test_how_far_into_a_list_one_can_go_is_bounded(store: DynamoStore) -> None:
    query = ListQuery(namespace="default", num_shards=1, offset=100_001)
    with pytest.raises(InvalidInput, match="offset must be at most 100000"):
        await store.select(query)
