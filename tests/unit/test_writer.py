"""Group commit: what goes together, what waits, and who hears of a failure."""

import asyncio
from collections.abc import Sequence

import pytest

import duetime.writer
from duetime.errors import StoreUnavailable
from duetime.model import Lease
from duetime.shard import Shard
from duetime.store import Batch, Traits
from duetime.stores.memory import MemoryStore
from duetime.testing.clock import FakeClock
from duetime.writer import Writer
from duetime.writes import Acknowledgement, Write
from tests.unit.engine import Limits, RecordingHost, timer


class GatedStore(MemoryStore):
    """Each write waits until the test lets it through, or fails it."""

    def __init__(self, side_by_side: int = 1) -> None:
        super().__init__()
        self.calls: list[Sequence[Batch]] = []
        self.gates: list[asyncio.Future[frozenset[int]]] = []
        self._side_by_side = side_by_side

    @property
    def traits(self) -> Traits:
        return Traits(name="gated", writes_in_flight_max=self._side_by_side)

    async def apply(self, batches: Sequence[Batch]) -> frozenset[int]:
        self.calls.append(batches)
        gate: asyncio.Future[frozenset[int]] = asyncio.get_running_loop().create_future()
        self.gates.append(gate)
        return await gate

    async def called(self, times: int) -> None:
        async with asyncio.timeout(10):
            while len(self.calls) < times:
                await asyncio.sleep(0)

    def let_through(self, superseded: frozenset[int] = frozenset()) -> None:
        self.gates.pop(0).set_result(superseded)


class WritingHost(RecordingHost):
    writer: Writer

    def write(self, shard: Shard, *, urgent: bool) -> None:
        self.writer.add(shard, urgent=urgent)


def world(
    *, shards: int = 2, side_by_side: int = 1, batch_timers_max: int = 100
) -> tuple[GatedStore, list[Shard], Writer]:
    store = GatedStore(side_by_side)
    host = WritingHost(FakeClock(1_000))
    host.writer = Writer(store, batch_timers_max=batch_timers_max)
    return (
        store,
        [Shard(Lease(n, 1, "node"), host=host, limits=Limits()) for n in range(shards)],
        host.writer,
    )


def put(shard: Shard, id: str) -> tuple[Write, Acknowledgement]:
    one = timer(id, at=50_000, shard=shard.number)
    ack = Acknowledgement(1)
    write = Write(one.uuid, put=one, ack=ack)
    assert shard.try_hold(one.uuid)
    shard.stage(write, generation=shard.generation)
    return write, ack


def ids(batches: Sequence[Batch]) -> list[list[str]]:
    return [[one.id for one in batch.puts] for batch in batches]


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_what_arrives_in_one_turn_of_the_loop_goes_in_one_write() -> None:
    store, (first, second), _ = world()
    put(first, "a")
    put(second, "b")
    put(first, "c")
    await turn()
    assert [ids(call) for call in store.calls] == [[["a", "c"], ["b"]]]


async def test_what_arrives_during_a_write_goes_into_the_next_one_together() -> None:
    store, (first, second), _ = world()
    _, ack = put(first, "a")
    await turn()
    put(first, "b")
    put(second, "c")
    await turn()
    assert len(store.calls) == 1
    assert not ack.future.done()
    store.let_through()
    await turn()
    assert ack.future.done()
    assert sorted(map(tuple, ids(store.calls[1]))) == [("b",), ("c",)]


async def test_side_by_side_writes_never_concern_one_shard() -> None:
    store, (first, second), _ = world(side_by_side=2)
    put(first, "a")
    await turn()
    put(first, "b")
    put(second, "c")
    await turn()
    assert [ids(call) for call in store.calls] == [[["a"]], [["c"]]]
    store.let_through()
    await turn()
    assert ids(store.calls[2]) == [["b"]]


async def test_a_write_is_bounded_and_the_rest_follows_in_order() -> None:
    store, (first, _), writer = world(batch_timers_max=2)
    for name in "abcde":
        put(first, name)
    for _ in range(3):
        await turn()
        store.let_through()
    await writer.drained()
    assert [ids(call) for call in store.calls] == [[["a", "b"]], [["c", "d"]], [["e"]]]


async def test_a_failed_write_is_told_to_each_of_its_shards() -> None:
    store, shards, writer = world()
    writes = [put(shard, "a")[0] for shard in shards]
    await turn()
    store.gates.pop(0).set_exception(StoreUnavailable("disk full"))
    await writer.drained()
    assert all(shard.paused for shard in shards)
    assert all(write.error is not None for write in writes)


async def test_only_the_superseded_shard_is_lost() -> None:
    store, (first, second), writer = world()
    (lost, _), (kept, _) = put(first, "a"), put(second, "b")
    await turn()
    store.let_through(frozenset({0}))
    await writer.drained()
    assert first.closed
    assert not second.closed
    assert lost.error is not None
    assert kept.error is None


def outcome(shard: Shard, name: str) -> None:
    """What firing has recorded: nobody waits for it."""
    one = timer(name, at=50_000, shard=shard.number)
    assert shard.try_hold(one.uuid)
    shard.stage(Write(one.uuid, put=one), generation=shard.generation)


async def test_outcomes_linger_and_share_a_write() -> None:
    store, (first, second), writer = world()
    outcome(first, "a")
    await turn()
    outcome(second, "b")
    await turn()
    assert store.calls == []
    await store.called(1)
    assert ids(store.calls[0]) == [["a"], ["b"]]
    store.let_through()
    await writer.drained()


async def test_a_request_takes_the_outcomes_that_linger_along_at_once() -> None:
    store, (first, second), _ = world()
    outcome(first, "a")
    put(second, "b")
    await turn()
    assert ids(store.calls[0]) == [["b"], ["a"]]


async def test_a_request_made_during_a_write_goes_as_soon_as_it_returns() -> None:
    store, (first, second), _ = world()
    put(first, "a")
    await turn()
    outcome(first, "b")
    put(second, "c")
    store.let_through()
    await turn()
    assert sorted(map(tuple, ids(store.calls[1]))) == [("b",), ("c",)]


async def test_outcomes_that_gathered_during_a_write_linger_after_it() -> None:
    store, (first, _), writer = world()
    put(first, "a")
    await turn()
    outcome(first, "b")
    store.let_through()
    await turn()
    assert len(store.calls) == 1
    await store.called(2)
    store.let_through()
    await writer.drained()


async def test_enough_outcomes_do_not_linger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duetime.writer, "LINGER_TIMERS", 2)
    store, (first, second), _ = world()
    outcome(first, "a")
    outcome(first, "b")
    await turn()
    assert store.calls == []
    outcome(second, "c")
    await turn()
    assert ids(store.calls[0]) == [["a", "b"], ["c"]]


async def test_outcomes_behind_a_request_that_filled_the_write_follow() -> None:
    store, (first, _), writer = world(batch_timers_max=2)
    for name in "abcd":
        outcome(first, name)
    put(first, "e")
    await turn()
    assert ids(store.calls[0]) == [["e", "a"]]
    for calls in (2, 3):
        store.let_through()
        await store.called(calls)
    store.let_through()
    await writer.drained()


async def test_outcomes_that_did_not_fit_are_not_forgotten() -> None:
    store, (first, _), writer = world(batch_timers_max=2)
    for name in "abc":
        outcome(first, name)
    await store.called(1)
    store.let_through()
    await store.called(2)
    store.let_through()
    await writer.drained()
    assert [ids(call) for call in store.calls] == [[["a", "b"]], [["c"]]]


async def test_in_a_burst_requests_go_first_and_beside_few_outcomes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(duetime.writer, "OUTCOMES_BESIDE_REQUESTS_MAX", 2)
    store, (first, second), writer = world()
    for name in "abcd":
        outcome(first, name)
    put(second, "e")
    await turn()
    assert ids(store.calls[0]) == [["e"], ["a", "b"]]
    store.let_through()
    await store.called(2)
    assert ids(store.calls[1]) == [["c", "d"]]
    store.let_through()
    await writer.drained()


async def test_a_request_goes_before_the_outcomes_of_its_own_shard() -> None:
    store, (first, _), writer = world(batch_timers_max=2)
    for name in "abc":
        outcome(first, name)
    put(first, "d")
    await turn()
    assert ids(store.calls[0]) == [["d", "a"]]
    store.let_through()
    await store.called(2)
    store.let_through()
    await writer.drained()
