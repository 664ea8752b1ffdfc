"""The whole engine on the memory store, its carrier and its faults played by the test."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from duetime.config import Config
from duetime.errors import (
    ConfigError,
    InvalidInput,
    NamespaceExists,
    NamespaceNotFound,
    PayloadTooLarge,
    TimerExecuting,
    TimerFinished,
    TimerNotFound,
    Unavailable,
    UnknownNamespace,
)
from duetime.model import RetryPolicy, Timer, View
from duetime.node import Node
from duetime.requests import Changes, NamespaceChanges, NewTimer, Selection
from duetime.retry import Answer
from duetime.routing import shard_of, timer_uuid
from duetime.store import Batch, Key, Traits
from duetime.stores.memory import MemoryStore
from duetime.testing.store import FaultyStore
from duetime.writes import Attempt

OK = Answer(200, b'{"ok":true}')
FAR_MS = 3_600_000


class HeldCarrier:
    """Keeps each attempt until the test answers it; `answer_at_once` does so by itself."""

    def __init__(self) -> None:
        self.sent: list[Attempt] = []
        self.open: list[Attempt] = []
        self.answer_at_once: Answer | None = OK
        self.changed = asyncio.Event()

    def destination(self, url: str) -> str:
        return url

    def send(self, attempt: Attempt) -> None:
        self.sent.append(attempt)
        self.changed.set()
        if self.answer_at_once is None:
            self.open.append(attempt)
        else:
            asyncio.get_running_loop().call_soon(attempt.answered, self.answer_at_once)

    async def close(self) -> None:
        self.open.clear()

    async def until_sent(self, count: int) -> list[Attempt]:
        async with asyncio.timeout(10):
            while len(self.sent) < count:
                self.changed.clear()
                await self.changed.wait()
        return self.sent


def config(**settings: object) -> Config:
    values = {"database_url": "memory:", "api_key": "k" * 32, "min_delay_s": 0, **settings}
    return Config(**values)  # type: ignore[arg-type]


class World:
    """A node, its store and its carrier."""

    def __init__(self, store: FaultyStore | None = None, **settings: object) -> None:
        self.store = FaultyStore(MemoryStore()) if store is None else store
        self.carrier = HeldCarrier()
        self.node = Node(config(**settings), self.store, self.carrier)
        self.service = self.node.service

    def new(self, id: str, *, in_ms: int = 0, **fields: object) -> NewTimer:
        values: dict[str, object] = {
            "namespace": "default",
            "id": id,
            "execute_at": self.node.clock.now() + in_ms + 1,
            "callback_url": "http://receiver.example/hook",
            "reply": "v1",
        }
        return NewTimer(**{**values, **fields})  # type: ignore[arg-type]

    async def until(self, done: Callable[[View], bool], id: str) -> View:
        """Ask for a timer until it is as expected."""
        async with asyncio.timeout(10):
            while not done(view := await self.service.get("default", id)):
                await asyncio.sleep(0)
            return view

    def abandon(self) -> None:
        """What `kill -9` leaves behind: the store as it is, and no more of this node."""
        for task in list(self.node._tasks):
            task.cancel()
        if self.node._alarm is not None:
            self.node._alarm.cancel()
        self.node._draining = True


def status(wanted: str) -> Callable[[View], bool]:
    return lambda view: view.status == wanted


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    await world.node.start()
    yield world
    await world.node.stop()


async def test_payloads_that_the_database_cannot_hold_are_refused_at_the_start() -> None:
    class Small(FaultyStore):
        @property
        def traits(self) -> Traits:
            return Traits(name="small", payload_bytes_max=1_000)

    with pytest.raises(ConfigError, match="PAYLOAD_BYTES_MAX must be at most 1000 on small"):
        await World(Small(MemoryStore()), payload_bytes_max=1_001).node.start()
    world = World(Small(MemoryStore()), payload_bytes_max=1_000)
    await world.node.start()
    await world.node.stop()


# -- what a user sees -----------------------------------------------------------------------


async def test_a_timer_is_fired_at_its_instant_and_moves_to_history(world: World) -> None:
    created = await world.service.create(world.new("a", in_ms=50, payload=b'{"x":1}'))
    assert created.status == "pending"
    (attempt, *_) = await world.carrier.until_sent(1)
    assert attempt.timer == created.timer
    assert attempt.started_at >= created.timer.execute_at
    view = await world.until(status("completed"), "a")
    assert view.executed_at is not None
    assert view.executed_at >= created.timer.execute_at
    assert view.attempts == 1


async def test_a_far_timer_that_is_moved_near_fires_at_once(world: World) -> None:
    await world.service.create(world.new("a", in_ms=FAR_MS))
    changes = Changes(execute_at=world.node.clock.now() + 30)
    moved = await world.service.update("default", "a", changes, reply="v1")
    assert (await world.carrier.until_sent(1))[0].timer == moved.timer


async def test_a_near_timer_that_is_moved_away_does_not_fire(world: World) -> None:
    await world.service.create(world.new("a", in_ms=200))
    changes = Changes(execute_at=world.node.clock.now() + FAR_MS)
    await world.service.update("default", "a", changes, reply="v1")
    await world.service.create(world.new("later", in_ms=300))
    assert [a.timer.id for a in await world.carrier.until_sent(1)] == ["later"]


async def test_a_canceled_timer_never_fires(world: World) -> None:
    await world.service.create(world.new("a", in_ms=100))
    canceled = await world.service.cancel("default", "a")
    assert (canceled.status, canceled.executed_at) == ("canceled", None)
    await world.service.create(world.new("later", in_ms=200))
    assert [a.timer.id for a in await world.carrier.until_sent(1)] == ["later"]
    with pytest.raises(TimerFinished) as caught:
        await world.service.cancel("default", "a")
    assert caught.value.status == "canceled"


async def test_creating_over_a_timer_replaces_it_whole(world: World) -> None:
    await world.service.create(world.new("a", in_ms=50, payload=b'{"old":1}'))
    new = await world.service.create(world.new("a", in_ms=100))
    attempts = await world.carrier.until_sent(1)
    await world.until(status("completed"), "a")
    assert [a.timer for a in attempts] == [new.timer]


async def test_while_a_callback_is_under_way_its_timer_is_executing(world: World) -> None:
    world.carrier.answer_at_once = None
    await world.service.create(world.new("a"))
    (attempt,) = await world.carrier.until_sent(1)
    assert (await world.service.get("default", "a")).status == "executing"
    with pytest.raises(TimerExecuting):
        await world.service.cancel("default", "a")
    with pytest.raises(TimerExecuting):
        await world.service.update("default", "a", Changes(), reply="v1")
    executing = await world.service.select(
        Selection(namespace="default", status="executing", total=True)
    )
    assert ([view.timer.id for view in executing.views], executing.total) == (["a"], 1)
    pending = await world.service.select(
        Selection(namespace="default", status="pending", total=True)
    )
    assert (pending.views, pending.total) == ([], 0)
    attempt.answered(OK)
    await world.until(status("completed"), "a")


async def test_a_timer_that_ends_while_it_is_read_is_never_shown_as_pending(world: World) -> None:
    world.carrier.answer_at_once = None
    await world.service.create(world.new("a"))
    (attempt,) = await world.carrier.until_sent(1)
    ask = world.node.timers.ask

    async def ask_and_end(key: Key) -> Timer | None:
        row = await ask(key)
        attempt.answered(OK)
        while attempt.shard.executing:
            await asyncio.sleep(0)
        return row

    world.node.timers.ask = ask_and_end  # type: ignore[assignment]
    assert (await world.service.get("default", "a")).status == "executing"


async def test_a_create_over_an_executing_timer_fires_again_and_the_old_answer_is_void(
    world: World,
) -> None:
    world.carrier.answer_at_once = None
    await world.service.create(world.new("a"))
    (old,) = await world.carrier.until_sent(1)
    await world.service.create(world.new("a", in_ms=50))
    assert (await world.service.get("default", "a")).status == "pending"
    old.answered(OK)
    assert (await world.service.get("default", "a")).status in ("pending", "executing")
    _, new = await world.carrier.until_sent(2)
    new.answered(OK)
    await world.until(status("completed"), "a")


async def test_a_failed_callback_is_retried_by_its_policy_and_then_fails(world: World) -> None:
    world.carrier.answer_at_once = Answer(500, b"", "HTTP 500 from http://receiver.example/hook")
    policy = RetryPolicy(max_attempts=3, initial_interval="10ms")
    await world.service.create(world.new("a", retry=policy))
    await world.carrier.until_sent(3)
    view = await world.until(status("failed"), "a")
    assert (view.attempts, view.last_error) == (3, "HTTP 500 from http://receiver.example/hook")
    assert [attempt.number for attempt in world.carrier.sent] == [1, 2, 3]


async def test_a_callback_can_make_its_timer_recur(world: World) -> None:
    world.carrier.answer_at_once = None
    await world.service.create(world.new("a"))
    for round_ in range(1, 4):
        attempts = await world.carrier.until_sent(round_)
        body = b'{"ok":true,"nextExecuteAt":"1999-01-01T00:00:00Z"}' if round_ < 3 else OK.body
        attempts[-1].answered(Answer(200, body))
    await world.until(status("completed"), "a")
    assert [attempt.number for attempt in world.carrier.sent] == [1, 1, 1]


async def test_a_batch_answers_each_item_and_the_later_of_two_with_one_key_wins(
    world: World,
) -> None:
    news = [
        world.new("a", in_ms=FAR_MS, payload=b"1"),
        world.new("b", in_ms=FAR_MS, callback_url="ftp://x"),
        world.new("a", in_ms=FAR_MS, payload=b"2"),
        world.new("c", in_ms=FAR_MS, namespace="nope"),
    ]
    answers = await world.service.create_many(news)
    assert [type(answer) for answer in answers] == [View, InvalidInput, View, UnknownNamespace]
    assert (await world.service.get("default", "a")).timer.payload == b"2"


async def test_concurrent_operations_on_one_key_leave_the_last_one_standing(world: World) -> None:
    await asyncio.gather(
        *(
            world.service.create(world.new("a", in_ms=FAR_MS, payload=str(i).encode()))
            for i in range(50)
        )
    )
    assert (await world.service.get("default", "a")).timer.payload == b"49"


async def test_values_that_break_a_rule_are_refused_and_nothing_is_stored(world: World) -> None:
    wrong: list[tuple[str, dict[str, object]]] = [
        ("id", {"id": ""}),
        ("id", {"id": "x" * 256}),
        ("id", {"id": "a\0b"}),
        ("callback_url", {"callback_url": "ftp://x/y"}),
        ("callback_url", {"callback_url": "http://x/" + "y" * 2_040}),
        ("callback_headers/Host", {"headers": {"Host": "x"}}),
        ("callback_headers/X-A", {"headers": {"X-A": "a\r\nb"}}),
        ("execute_at", {"execute_at": 5}),
        ("execute_at", {"reply": "rest", "execute_at": world.node.clock.now() + 5_000}),
        ("callback_timeout_seconds", {"timeout_s": 31}),
        ("callback_timeout_seconds", {"timeout_s": 0}),
        ("retry_policy/max_attempts", {"retry": RetryPolicy(max_attempts=0)}),
        ("retry_policy/initial_interval", {"retry": RetryPolicy(initial_interval="5")}),
        ("retry_policy/backoff_multiplier", {"retry": RetryPolicy(backoff_multiplier=0.5)}),
    ]
    for field, values in wrong:
        with pytest.raises(InvalidInput) as caught:
            await world.service.create(world.new(**{"id": "a", "in_ms": FAR_MS, **values}))  # type: ignore[arg-type]
        assert caught.value.field == field
    with pytest.raises(PayloadTooLarge):
        await world.service.create(world.new("a", in_ms=FAR_MS, payload=b"1" * 102_401))
    with pytest.raises(TimerNotFound):
        await world.service.get("default", "a")


async def test_an_update_changes_what_it_names_and_clears_what_it_nulls(world: World) -> None:
    new = world.new("a", in_ms=FAR_MS, payload=b"1", metadata=b"2", headers={"X-A": "b"})
    before = (await world.service.create(new)).timer
    changes = Changes(payload=b"3", metadata=None, timeout_s=7)
    after = (await world.service.update("default", "a", changes, reply="v1")).timer
    assert (after.payload, after.metadata, after.headers, after.timeout_s) == (
        b"3",
        None,
        {"X-A": "b"},
        7,
    )
    assert (after.execute_at, after.created_at) == (before.execute_at, before.created_at)
    with pytest.raises(InvalidInput):
        await world.service.update("default", "a", Changes(execute_at=5), reply="v1")
    assert (await world.service.get("default", "a")).timer == after
    await world.service.cancel("default", "a")  # The refused update has let go of the key.


# -- namespaces ---------------------------------------------------------------------------


async def test_a_new_namespace_can_be_used_at_once(world: World) -> None:
    namespace = await world.service.create_namespace("big", 64, history_retention_s=0)
    assert len(world.node.shards) == 64
    await world.service.create(world.new("a", namespace="big"))
    await world.carrier.until_sent(1)
    async with asyncio.timeout(10):
        while True:
            try:
                await world.service.get("big", "a")
            except TimerNotFound:  # It keeps no history.
                break
            await asyncio.sleep(0)
    assert await world.service.get_namespace("big") == namespace
    assert [ns.name for ns in await world.service.namespaces()] == ["big", "default"]


async def test_a_namespace_keeps_its_number_of_shards(world: World) -> None:
    await world.service.create_namespace("n", 4)
    with pytest.raises(InvalidInput) as caught:
        await world.service.update_namespace("n", NamespaceChanges(num_shards=8))
    assert caught.value.field == "num_shards"
    changed = await world.service.update_namespace(
        "n", NamespaceChanges(num_shards=4, min_delay_s=9, history_retention_s=None)
    )
    assert (changed.min_delay_s, changed.history_retention_s) == (9, 604_800)
    with pytest.raises(NamespaceExists):
        await world.service.create_namespace("n", 4)
    with pytest.raises(NamespaceNotFound):
        await world.service.update_namespace("m", NamespaceChanges())


@pytest.mark.parametrize("name", ["", "a:b", "a#b", "x" * 256, "a\0"])
async def test_a_namespace_name_that_could_confuse_keys_is_refused(world: World, name: str) -> None:
    with pytest.raises(InvalidInput):
        await world.service.create_namespace(name, 4)


async def test_namespaces_outlive_the_node(world: World) -> None:
    namespace = await world.service.create_namespace("n", 4, min_delay_s=3)
    world.abandon()
    other = World(world.store)
    await other.node.start()
    assert await other.service.get_namespace("n") == namespace
    other.abandon()


# -- restarts and faults --------------------------------------------------------------------


async def test_what_a_dead_node_left_fires_on_the_next_one_whatever_its_age(world: World) -> None:
    world.carrier.answer_at_once = None
    await world.service.create(world.new("under-way"))
    await world.service.create(world.new("waiting", in_ms=100))
    await world.carrier.until_sent(1)
    world.abandon()
    await asyncio.sleep(0.1)  # Let the second fall due while nobody is there.
    other = World(world.store)
    await other.node.start()
    attempts = await other.carrier.until_sent(2)
    assert {attempt.timer.id for attempt in attempts} == {"under-way", "waiting"}
    await other.until(status("completed"), "under-way")
    await other.node.stop()


async def test_a_write_that_failed_is_said_to_be_unknown_and_the_next_one_succeeds(
    world: World,
) -> None:
    world.store.faults.append("before")
    with pytest.raises(Unavailable, match="not known"):
        await world.service.create(world.new("a", in_ms=FAR_MS))
    async with asyncio.timeout(10):
        while True:
            try:
                await world.service.create(world.new("b", in_ms=20))
                break
            except Unavailable:
                await asyncio.sleep(0.01)
    assert [a.timer.id for a in await world.carrier.until_sent(1)] == ["b"]


async def test_a_create_whose_write_took_effect_although_it_failed_still_fires(
    world: World,
) -> None:
    world.store.faults.append("after")
    with pytest.raises(Unavailable):
        await world.service.create(world.new("a", in_ms=100))
    assert [a.timer.id for a in await world.carrier.until_sent(1)] == ["a"]


@pytest.mark.parametrize("fault", ["before", "after"])
async def test_an_outcome_that_could_not_be_written_is_written_later_without_firing_again(
    world: World, fault: str
) -> None:
    world.carrier.answer_at_once = None
    await world.service.create(world.new("a"))
    (attempt,) = await world.carrier.until_sent(1)
    world.store.faults.append(fault)  # type: ignore[arg-type]
    attempt.answered(OK)
    view = await world.until(status("completed"), "a")
    assert view.attempts == 1
    assert len(world.carrier.sent) == 1
    assert world.node.firing.unrecorded == 0


async def test_while_the_store_is_down_requests_are_refused_and_afterwards_all_is_well(
    world: World,
) -> None:
    await world.service.create(world.new("a", in_ms=300))
    world.store.down = True
    with pytest.raises(Unavailable):
        await world.service.create(world.new("b", in_ms=FAR_MS))
    with pytest.raises(Unavailable):
        await world.service.get("default", "unknown")
    world.store.down = False
    await world.carrier.until_sent(1)
    await world.until(status("completed"), "a")


async def test_a_stolen_shard_writes_nothing_and_is_claimed_again(world: World) -> None:
    await world.service.create(world.new("a", in_ms=FAR_MS))
    number = shard_of("a", 16)
    (thief,) = await world.store.claim([number], owner="thief", at=1)
    shard = world.node.shards[number]
    updating = asyncio.create_task(
        world.service.update("default", "a", Changes(payload=b"1"), reply="v1")
    )
    async with asyncio.timeout(10):
        while not shard.closed:
            await asyncio.sleep(0)
    (stored,) = await world.store.get([Key(number, "default", "a")])
    assert stored is not None
    assert stored.payload is None
    assert (await updating).timer.payload == b"1"  # The caller did not notice.
    assert world.node.shards[number].lease.version == thief.version + 1


async def test_an_outcome_kept_over_a_failed_write_is_void_if_another_node_wrote_in_between(
    world: World,
) -> None:
    world.carrier.answer_at_once = None
    await world.service.create(world.new("a", retry=RetryPolicy(max_attempts=2)))
    (attempt,) = await world.carrier.until_sent(1)
    number = shard_of("a", 16)
    (lease,) = await world.store.claim([number], owner="other", at=1)
    await world.store.apply([Batch(lease, [], [attempt.timer], [])])  # It was canceled there.
    world.store.faults.append("before")
    attempt.answered(Answer(500))
    async with asyncio.timeout(10):
        while world.node.firing.unrecorded or world.node.shards[number] is attempt.shard:
            await asyncio.sleep(0.01)
    assert (await world.store.get([Key(number, "default", "a")])) == [None]
    assert not world.node.shards[number].paused
    await world.service.create(world.new("a", in_ms=FAR_MS))


async def test_a_timer_that_memory_overlooked_is_found_by_the_safety_read(world: World) -> None:
    shard = world.node.shards[shard_of("hidden", 16)]
    await world.service.create(world.new("other", in_ms=FAR_MS))
    at = world.node.clock.now() - 20_000
    hidden = Timer(
        namespace="default",
        id="hidden",
        uuid=timer_uuid("default", "hidden"),
        shard=shard.number,
        execute_at=at,
        callback_url="http://receiver.example/hook",
        created_at=at,
        updated_at=at,
        scheduled_at=at,
        timeout_s=30,
        reply="v1",
    )
    await world.store.apply([Batch(shard.lease, [hidden], [], [])])
    await world.node._check(world.node.shards.values())
    assert [a.timer for a in await world.carrier.until_sent(1)] == [hidden]


async def test_draining_lets_callbacks_finish_records_them_and_releases_the_shards() -> None:
    world = World()
    await world.node.start()
    world.carrier.answer_at_once = None
    await world.service.create(world.new("a"))
    (attempt,) = await world.carrier.until_sent(1)
    await world.service.create(world.new("b", in_ms=10))
    draining = asyncio.create_task(world.node.drain())
    await asyncio.sleep(0)
    attempt.answered(OK)
    await draining
    key = Key(shard_of("a", 16), "default", "a")
    assert (await world.store.outcomes([key]))[0] is not None
    assert {row.owner for row in await world.store.shards()} == {None}
    await world.node.stop()
    assert [a.timer.id for a in world.carrier.sent] in (["a"], ["a", "b"])


async def test_a_drain_does_not_wait_for_ever_for_a_callback_that_hangs() -> None:
    world = World(drain_timeout_s=0)
    await world.node.start()
    world.carrier.answer_at_once = None
    await world.service.create(world.new("a"))
    await world.carrier.until_sent(1)
    async with asyncio.timeout(5):
        await world.node.drain()
    assert (await world.store.get([Key(shard_of("a", 16), "default", "a")]))[0] is not None
    await world.node.stop()


async def test_a_burst_beyond_every_bound_is_fired_once_each() -> None:
    world = World(
        window_timers_max=200,
        window_page_timers=20,
        write_batch_timers_max=50,
        in_flight_max=30,
        in_flight_per_destination_max=20,
        unrecorded_max=40,
    )
    await world.node.start()
    due_in_ms = 300
    news = [world.new(f"t{i}", in_ms=due_in_ms) for i in range(3_000)]
    for start in range(0, len(news), 500):
        await world.service.create_many(news[start : start + 500])
    await world.carrier.until_sent(len(news))
    async with asyncio.timeout(10):
        while world.node.firing.in_flight or world.node.firing.unrecorded:
            await asyncio.sleep(0)
    assert sorted(a.timer.id for a in world.carrier.sent) == sorted(new.id for new in news)
    assert all(a.started_at >= a.timer.execute_at for a in world.carrier.sent)
    done = await world.service.select(
        Selection(namespace="default", status="completed", total=True, limit=1)
    )
    assert done.total == len(news)
    await world.node.stop()
