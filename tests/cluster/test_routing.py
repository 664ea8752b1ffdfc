"""Any node does what any other one could: through real sockets, and while shards move."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from duetime.errors import (
    InvalidInput,
    NamespaceNotFound,
    NodeNotFound,
    RequestError,
    TimerExecuting,
    TimerFinished,
    TimerNotFound,
    Unavailable,
    UnknownNamespace,
)
from duetime.model import View
from duetime.requests import Changes, NamespaceChanges, Selection
from duetime.retry import Answer
from duetime.routing import shard_of
from tests.cluster.static import SHARDS, Cluster, cluster, shown

OK = Answer(200, b'{"ok":true}')


@pytest.fixture
async def nodes() -> AsyncIterator[Cluster]:
    async with cluster() as both:
        yield both


def id_on(nodes: Cluster, name: str, prefix: str = "t") -> str:
    """An id whose shard that node owns."""
    return next(
        which
        for which in (f"{prefix}{n}" for n in range(1_000))
        if nodes.table.owners[shard_of(which, SHARDS)] == name
    )


# -- every operation, through the node that does not own the timer ----------------------------


async def test_a_timer_is_created_changed_and_canceled_through_the_other_node(
    nodes: Cluster,
) -> None:
    which, service = id_on(nodes, "b"), nodes["a"].service
    created = await service.create(nodes.new(which, payload=b'{"x":1}', metadata=b"[2]"))
    assert created == await service.get("default", which)
    assert created == await nodes["b"].service.get("default", which)
    changes = Changes(payload=None, headers={"X-Y": "z"}, timeout_s=None)
    changed = await service.update("default", which, changes, reply="v1")
    assert (changed.timer.payload, changed.timer.headers) == (None, {"X-Y": "z"})
    assert changed.timer.metadata == b"[2]"
    assert changed == await nodes["b"].service.get("default", which)
    canceled = await service.cancel("default", which)
    assert canceled.status == "canceled"
    assert canceled == await service.get("default", which)


async def test_errors_of_the_owner_arrive_as_what_they_are(nodes: Cluster) -> None:
    which, service = id_on(nodes, "b"), nodes["a"].service
    with pytest.raises(TimerNotFound) as not_found:
        await service.get("default", which)
    assert (not_found.value.namespace, not_found.value.id) == ("default", which)
    await service.create(nodes.new(which))
    past = Changes(execute_at=1)
    with pytest.raises(InvalidInput) as invalid:
        await service.update("default", which, past, reply="v1")
    assert (invalid.value.field, invalid.value.problem) == ("execute_at", "must be in the future")
    await service.cancel("default", which)
    with pytest.raises(TimerFinished) as finished:
        await service.cancel("default", which)
    assert finished.value.status == "canceled"


async def test_a_timer_fires_at_its_owner_whoever_took_it_in(nodes: Cluster) -> None:
    which = id_on(nodes, "b")
    await nodes["a"].service.create(nodes.new(which, in_ms=20))
    (attempt,) = await nodes["b"].carrier.until_sent(1)
    assert attempt.timer.id == which
    assert nodes["a"].carrier.sent == []
    await shown(nodes["a"].service, which, "completed")


async def test_what_executes_elsewhere_is_seen_and_left_alone(nodes: Cluster) -> None:
    nodes["b"].carrier.answer_at_once = None
    which, service = id_on(nodes, "b"), nodes["a"].service
    await service.create(nodes.new(which, in_ms=0, payload=b'{"x":1}', metadata=b"5"))
    (attempt,) = await nodes["b"].carrier.until_sent(1)
    assert (await service.get("default", which)).status == "executing"
    with pytest.raises(TimerExecuting):
        await service.cancel("default", which)
    with pytest.raises(TimerExecuting):
        await service.update("default", which, Changes(payload=b"1"), reply="v1")
    everything = await service.select(Selection(namespace="default"))
    assert [(view.timer.id, view.status) for view in everything.views] == [(which, "executing")]
    pending = await service.select(Selection(namespace="default", status="pending"))
    assert pending.views == []
    executing = await service.select(Selection(namespace="default", status="executing", total=True))
    assert (executing.views, executing.total) == (everything.views, 1)
    assert executing.views[0].timer.payload == b'{"x":1}'
    attempt.answered(OK)
    await shown(service, which, "completed")


async def test_a_list_shows_the_timers_of_all_nodes(nodes: Cluster) -> None:
    ids = {id_on(nodes, "a"), id_on(nodes, "b")}
    for which in ids:
        await nodes["a"].service.create(nodes.new(which))
    for name in "ab":
        selected = await nodes[name].service.select(Selection(namespace="default", total=True))
        assert ({view.timer.id for view in selected.views}, selected.total) == (ids, 2)


async def test_a_node_that_does_not_answer_costs_a_list_its_marks_only(
    nodes: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duetime.cluster.router.EXECUTING_S", 0.05)
    nodes["b"].carrier.answer_at_once = None
    which, service = id_on(nodes, "b"), nodes["a"].service
    await service.create(nodes.new(which, in_ms=0))
    await nodes["b"].carrier.until_sent(1)

    async def say_nothing(_: object) -> object:
        return await asyncio.Event().wait()

    assert nodes["b"].peers is not None
    nodes["b"].peers.on_call = say_nothing
    (view,) = (await service.select(Selection(namespace="default"))).views
    assert (view.timer.id, view.status) == (which, "pending")


# -- batches ------------------------------------------------------------------------------------


@pytest.mark.parametrize("through", ["a", "b"])
async def test_a_batch_over_both_nodes_is_answered_item_by_item_in_order(
    nodes: Cluster, through: str
) -> None:
    news = [nodes.new(f"t{n}") for n in range(1_000)]
    news[7] = nodes.new("t7", execute_at=1)
    news[8] = nodes.new("t8", namespace="absent")
    answers = await nodes[through].service.create_many(news)
    assert isinstance(answers[7], InvalidInput)
    assert isinstance(answers[8], UnknownNamespace)
    for n, answer in enumerate(answers):
        if n not in (7, 8):
            assert isinstance(answer, View)
            assert answer.timer.id == f"t{n}"
            assert answer == await nodes["b"].service.get("default", f"t{n}")


async def test_of_two_with_one_key_in_a_batch_the_later_one_wins(nodes: Cluster) -> None:
    ids = [id_on(nodes, "a"), id_on(nodes, "b")]
    news = [nodes.new(which, payload=b"%d" % n) for n in range(5) for which in ids]
    answers = await nodes["a"].service.create_many(news)
    assert all(isinstance(answer, View) for answer in answers)
    for which in ids:
        assert (await nodes["a"].service.get("default", which)).timer.payload == b"4"


async def test_a_batch_that_is_large_travels_in_parts(
    nodes: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duetime.cluster.router.PART_BYTES_MAX", 10_000)
    news = [nodes.new(f"t{n}", payload=b'"%s"' % (b"x" * 3_000)) for n in range(50)]
    answers = await nodes["a"].service.create_many(news)
    assert [a.timer.id for a in answers if isinstance(a, View)] == [f"t{n}" for n in range(50)]


async def test_what_is_asked_at_once_travels_together(nodes: Cluster) -> None:
    service = nodes["a"].service
    answers = await asyncio.gather(*(service.create(nodes.new(f"t{n}")) for n in range(500)))
    assert [answer.timer.id for answer in answers] == [f"t{n}" for n in range(500)]
    views = await asyncio.gather(*(service.get("default", f"t{n}") for n in range(500)))
    assert views == answers


# -- shards that move ---------------------------------------------------------------------------


async def test_a_request_waits_while_the_shard_changes_hands(nodes: Cluster) -> None:
    which = id_on(nodes, "b")
    shard = shard_of(which, SHARDS)
    await nodes.move(shard, None)
    requests = [
        asyncio.create_task(nodes[name].service.create(nodes.new(f"{which}"))) for name in "ab"
    ]
    batch = asyncio.create_task(
        nodes["b"].service.create_many([nodes.new(f"t{n}") for n in range(100)])
    )
    reads = nodes.table.reads
    async with asyncio.timeout(10):
        while nodes.table.reads < reads + 6:
            await asyncio.sleep(0)
    assert not any(task.done() for task in (*requests, batch))
    await nodes.move(shard, "a")
    for request in requests:
        assert (await request).timer.id == which
    assert all(isinstance(answer, View) for answer in await batch)


async def test_a_request_to_the_former_owner_finds_the_new_one(nodes: Cluster) -> None:
    which = id_on(nodes, "b")
    shard = shard_of(which, SHARDS)
    await nodes["a"].service.create(nodes.new(which))
    former = nodes.table.owners[shard]
    await nodes.move(shard, "a")
    nodes.table.owners[shard] = former  # Everybody still believes so.

    async def refresh() -> None:
        nodes.table.owners[shard] = "a"

    nodes["b"].ownership.refresh = refresh  # type: ignore[method-assign]
    assert (await nodes["b"].service.get("default", which)).timer.id == which


async def test_two_that_take_each_other_for_the_owner_do_not_pass_it_on_for_ever(
    nodes: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duetime.cluster.router.SEARCH_S", 0.05)
    which = id_on(nodes, "b")
    shard = shard_of(which, SHARDS)
    await nodes.move(shard, None)
    nodes.table.owners[shard] = "b"
    with pytest.raises(Unavailable, match=f"shard {shard} has no owner at this moment"):
        await nodes["a"].service.create(nodes.new(which))
    (answer,) = await nodes["a"].service.create_many([nodes.new(which)])
    assert isinstance(answer, Unavailable)


async def test_shards_move_to_and_fro_under_load_and_no_request_fails(nodes: Cluster) -> None:
    stop = asyncio.Event()
    done: list[View | RequestError] = []

    async def client(number: int) -> None:
        service = nodes["ab"[number % 2]].service
        n = 0
        while not stop.is_set():
            n += 1
            which = f"c{number}-{n}"
            done.append(await service.create(nodes.new(which)))
            done.append(await service.update("default", which, Changes(payload=b"1"), reply="v1"))
            if n % 3 == 0:
                done.extend(
                    await service.create_many([nodes.new(f"{which}-{m}") for m in range(20)])
                )
            done.append(await service.cancel("default", which))

    clients = [asyncio.create_task(client(number)) for number in range(8)]
    for shard in [*range(SHARDS)] * 3:
        await nodes.move(shard, "ab"[nodes.table.owners[shard] == "a"])
        await asyncio.sleep(0)
    stop.set()
    await asyncio.gather(*clients)
    assert len(done) > 100
    assert not [answer for answer in done if not isinstance(answer, View)]


async def test_after_the_owner_has_died_requests_wait_for_the_next_one(nodes: Cluster) -> None:
    which = id_on(nodes, "b")
    assert nodes["b"].peers is not None
    await nodes["a"].service.create(nodes.new(which))
    await nodes["b"].peers.close()
    request = asyncio.create_task(nodes["a"].service.cancel("default", which))
    reads = nodes.table.reads
    async with asyncio.timeout(10):
        while nodes.table.reads < reads + 3:
            await asyncio.sleep(0)
    await nodes.move(shard_of(which, SHARDS), "a")
    assert (await request).status == "canceled"


# -- namespaces, and the rest of the cluster ------------------------------------------------------


async def test_a_namespace_is_known_everywhere_as_soon_as_it_is_created(nodes: Cluster) -> None:
    await nodes["a"].service.create_namespace("n", 4)
    created = await nodes["b"].service.create(nodes.new("x", namespace="n"))
    assert created == await nodes["a"].service.get("n", "x")
    assert (await nodes["b"].service.get_namespace("n")).num_shards == 4
    changes = NamespaceChanges(min_delay_s=5)
    await nodes["a"].service.update_namespace("n", changes)
    assert (await nodes["b"].service.update_namespace("n", changes)).min_delay_s == 5
    with pytest.raises(NamespaceNotFound):
        await nodes["b"].service.get_namespace("absent")


async def test_a_node_is_told_to_drain_through_the_other_one(nodes: Cluster) -> None:
    await nodes["a"].service.drain_node("b", undo=False)
    await nodes["a"].service.drain_node("b", undo=True)
    await nodes["a"].service.drain_node("a", undo=False)
    assert (nodes["a"].ownership.drained, nodes["b"].ownership.drained) == ([False], [False, True])
    with pytest.raises(NodeNotFound):
        await nodes["a"].service.drain_node("c", undo=False)
