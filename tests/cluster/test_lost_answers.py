"""The owner did what it was asked and its answer was lost: asked again, it does not do it twice,
nor does another node that has taken the shard over since."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from duetime.clock import SystemClock
from duetime.cluster.peers import Operation
from duetime.cluster.tcp import TcpPeers
from duetime.errors import TimerNotFound, Unavailable
from duetime.model import View
from duetime.requests import Changes, NamespaceChanges
from duetime.routing import shard_of
from tests.cluster.static import SHARDS, Cluster, cluster, shown
from tests.cluster.test_routing import id_on


@pytest.fixture
async def nodes() -> AsyncIterator[Cluster]:
    async with cluster() as both:
        yield both


async def nothing() -> None:
    pass


def losing(nodes: Cluster, meanwhile: Callable[[], Awaitable[object]] = nothing) -> list[Operation]:
    """`b` loses its next answer, after this has happened meanwhile; all that it is asked."""
    peers = nodes["b"].peers
    assert isinstance(peers, TcpPeers)
    on_call, asked = peers.on_call, []

    async def lose(operation: Operation) -> Any:
        asked.append(operation)
        answer = await on_call(operation)
        if len(asked) == 1:
            await meanwhile()
            for connection in list(peers._in):
                connection.close("made to fail")
        return answer

    peers.on_call = lose
    return asked


def moving(nodes: Cluster, which: str) -> Callable[[], Awaitable[None]]:
    """Have `a` take over the shard of this timer."""

    async def move() -> None:
        await nodes.move(shard_of(which, SHARDS), "a")

    return move


async def keep_no_history(nodes: Cluster) -> None:
    for name in "ab":
        await nodes[name].service.update_namespace(
            "default", NamespaceChanges(history_retention_s=0)
        )


class Stopped(SystemClock):
    """A clock that stands still."""

    def __init__(self, at: int) -> None:
        self._at = at

    def now(self) -> int:
        return self._at


async def test_a_create_is_not_written_twice(nodes: Cluster) -> None:
    which = id_on(nodes, "b")
    asked = losing(nodes)
    created = await nodes["a"].service.create(nodes.new(which))
    assert len(asked) == 2
    assert created == await nodes["b"].service.get("default", which)
    writes = [shard.lease.version for shard in nodes["b"].shards.values()]
    assert set(writes) == {1}


async def test_what_was_canceled_meanwhile_does_not_come_back(nodes: Cluster) -> None:
    which = id_on(nodes, "b")

    async def cancel() -> None:
        await nodes["b"].service.cancel("default", which)

    losing(nodes, cancel)
    assert (await nodes["a"].service.create(nodes.new(which))).status == "pending"
    assert (await nodes["a"].service.get("default", which)).status == "canceled"


async def test_what_has_fired_meanwhile_does_not_fire_again(nodes: Cluster) -> None:
    which = id_on(nodes, "b")

    async def fire() -> None:
        await shown(nodes["b"].service, which, "completed")

    losing(nodes, fire)
    await nodes["a"].service.create(nodes.new(which, in_ms=0))
    assert (await nodes["a"].service.get("default", which)).status == "completed"
    assert len(nodes["b"].carrier.sent) == 1


async def test_what_executes_is_not_put_again(nodes: Cluster) -> None:
    which = id_on(nodes, "b")
    nodes["b"].carrier.answer_at_once = None

    async def execute() -> None:
        await nodes["b"].carrier.until_sent(1)

    losing(nodes, execute)
    await nodes["a"].service.create(nodes.new(which, in_ms=0))
    assert (await nodes["a"].service.get("default", which)).status == "executing"


async def test_a_create_does_not_come_over_another_of_the_same_millisecond(nodes: Cluster) -> None:
    which = id_on(nodes, "b")
    frozen = nodes["a"].clock.now()
    for name in "ab":
        nodes[name].service.clock = Stopped(frozen)

    async def create() -> None:
        await nodes["b"].service.create(nodes.new(which, payload=b"2"))

    losing(nodes, create)
    await nodes["a"].service.create(nodes.new(which, payload=b"1"))
    assert (await nodes["a"].service.get("default", which)).timer.payload == b"2"


async def test_a_create_that_another_owner_may_have_done_is_not_done_twice(nodes: Cluster) -> None:
    which = id_on(nodes, "b")
    losing(nodes, moving(nodes, which))
    created = await nodes["a"].service.create(nodes.new(which))
    assert created == await nodes["a"].service.get("default", which)


async def test_what_another_owner_has_fired_does_not_fire_again(nodes: Cluster) -> None:
    which = id_on(nodes, "b")

    async def fire() -> None:
        await shown(nodes["b"].service, which, "completed")
        await moving(nodes, which)()

    losing(nodes, fire)
    await nodes["a"].service.create(nodes.new(which, in_ms=0))
    assert (await nodes["a"].service.get("default", which)).status == "completed"
    assert nodes["a"].carrier.sent == []


async def test_whether_a_create_was_done_is_not_known_where_another_one_stands(
    nodes: Cluster,
) -> None:
    which = id_on(nodes, "b")

    async def create() -> None:
        await nodes["b"].service.create(nodes.new(which, payload=b"2"))
        await moving(nodes, which)()

    losing(nodes, create)
    with pytest.raises(Unavailable, match="not known"):
        await nodes["a"].service.create(nodes.new(which, payload=b"1"))
    assert (await nodes["a"].service.get("default", which)).timer.payload == b"2"


async def test_whether_a_create_was_done_is_not_known_where_no_trace_is_kept(
    nodes: Cluster,
) -> None:
    which = id_on(nodes, "b")
    await keep_no_history(nodes)

    async def cancel() -> None:
        await nodes["b"].service.cancel("default", which)
        await moving(nodes, which)()

    losing(nodes, cancel)
    with pytest.raises(Unavailable, match="not known"):
        await nodes["a"].service.create(nodes.new(which))
    with pytest.raises(TimerNotFound):
        await nodes["a"].service.get("default", which)


async def test_a_create_that_was_not_done_is_done(nodes: Cluster) -> None:
    """It never came to the owner, who has an older timer under that id."""
    which, service = id_on(nodes, "b"), nodes["a"].service
    await service.create(nodes.new(which, payload=b"1"))
    peers = nodes["b"].peers
    assert isinstance(peers, TcpPeers)
    on_call = peers.on_call

    async def forget(operation: Operation) -> Any:
        peers.on_call = on_call
        for connection in list(peers._in):
            connection.close("made to fail")

    peers.on_call = forget
    await service.create(nodes.new(which, payload=b"2"))
    assert (await service.get("default", which)).timer.payload == b"2"


async def test_a_batch_whose_answer_was_lost_is_answered(nodes: Cluster) -> None:
    asked = losing(nodes)
    news = [nodes.new(f"t{n}") for n in range(200)]
    answers = await nodes["a"].service.create_many(news)
    assert all(isinstance(answer, View) for answer in answers)
    assert len(asked) == 2


async def test_a_cancel_that_took_effect_has_succeeded(nodes: Cluster) -> None:
    which, service = id_on(nodes, "b"), nodes["a"].service
    await service.create(nodes.new(which))
    asked = losing(nodes)
    assert (await service.cancel("default", which)).status == "canceled"
    assert len(asked) == 2


async def test_a_cancel_by_another_owner_has_succeeded(nodes: Cluster) -> None:
    which, service = id_on(nodes, "b"), nodes["a"].service
    await service.create(nodes.new(which))
    losing(nodes, moving(nodes, which))
    assert (await service.cancel("default", which)).status == "canceled"


async def test_a_cancel_of_which_no_trace_is_kept_is_not_known(nodes: Cluster) -> None:
    which, service = id_on(nodes, "b"), nodes["a"].service
    await keep_no_history(nodes)
    await service.create(nodes.new(which))
    losing(nodes, moving(nodes, which))
    with pytest.raises(Unavailable, match="not known"):
        await service.cancel("default", which)
    with pytest.raises(TimerNotFound):
        await service.cancel("default", which)


async def test_an_update_is_not_made_twice(nodes: Cluster) -> None:
    """It would put back what another one has changed since."""
    which, service = id_on(nodes, "b"), nodes["a"].service
    await service.create(nodes.new(which))

    async def update() -> None:
        await nodes["b"].service.update("default", which, Changes(payload=b"8"), reply="v1")

    losing(nodes, update)
    changed = await service.update("default", which, Changes(payload=b"7"), reply="v1")
    assert changed.timer.payload == b"7"
    assert (await service.get("default", which)).timer.payload == b"8"


async def test_an_update_by_another_owner_sets_the_same_once_more(nodes: Cluster) -> None:
    which, service = id_on(nodes, "b"), nodes["a"].service
    await service.create(nodes.new(which))
    asked = losing(nodes, moving(nodes, which))
    changed = await service.update("default", which, Changes(payload=b"7"), reply="v1")
    assert changed.timer.payload == b"7"
    assert len(asked) == 1
    assert changed == await service.get("default", which)


async def test_an_update_that_can_be_repeated_no_more_is_not_known(nodes: Cluster) -> None:
    which, service = id_on(nodes, "b"), nodes["a"].service
    await service.create(nodes.new(which))

    async def cancel() -> None:
        await nodes["b"].service.cancel("default", which)
        await moving(nodes, which)()

    losing(nodes, cancel)
    with pytest.raises(Unavailable, match="not known"):
        await service.update("default", which, Changes(payload=b"7"), reply="v1")


async def test_a_get_is_asked_again(nodes: Cluster) -> None:
    which, service = id_on(nodes, "b"), nodes["a"].service
    created = await service.create(nodes.new(which))
    asked = losing(nodes)
    assert await service.get("default", which) == created
    assert len(asked) == 2


async def test_nobody_is_asked_for_ever(nodes: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duetime.cluster.router.SEARCH_S", 0.05)
    monkeypatch.setattr("duetime.cluster.tcp.RECONNECT_S", 0.0)
    which, service = id_on(nodes, "b"), nodes["a"].service
    peers = nodes["b"].peers
    assert isinstance(peers, TcpPeers)

    async def lose(operation: Operation) -> Any:
        for connection in list(peers._in):
            connection.close("made to fail")
        return {}

    peers.on_call = lose
    with pytest.raises(Unavailable, match="not known"):
        await service.create(nodes.new(which))
    with pytest.raises(Unavailable, match="not known"):
        await service.cancel("default", which)
    with pytest.raises(Unavailable, match="no owner"):
        await service.get("default", which)
