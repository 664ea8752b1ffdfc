"""Firing under its bounds, with a carrier that answers when the test says so."""

from dataclasses import dataclass

import pytest

from duetime.firing import Firing
from duetime.model import Lease, Namespace, RetryPolicy, Timer
from duetime.retry import NOT_SENT, Answer
from duetime.shard import Shard
from duetime.testing.clock import FakeClock
from duetime.writes import Acknowledgement, Attempt, Write
from tests.unit.engine import Limits, RecordingHost, deliver, timer, write_now

OK = Answer(200, b'{"ok":true}')
BROKEN = Answer(503, b"", "HTTP 503 from http://receiver/x")


@dataclass
class Bounds:
    in_flight_max: int = 4
    in_flight_per_destination_max: int = 3
    parked_per_destination_max: int = 2
    unrecorded_max: int = 100


class HandCarrier:
    """Keeps attempts until the test answers them."""

    def __init__(self) -> None:
        self.sent: list[Attempt] = []

    def destination(self, url: str) -> str:
        return url.split("/")[2]

    def send(self, attempt: Attempt) -> None:
        self.sent.append(attempt)

    async def close(self) -> None:
        self.sent.clear()


class World:
    """One shard with wide windows, its host, and the firing under test."""

    def __init__(self, bounds: Bounds, namespace: Namespace | None = None) -> None:
        self.clock = FakeClock(1_000_000)
        self.host = RecordingHost(self.clock)
        self.carrier = HandCarrier()
        self.firing = Firing(
            self.carrier,
            limits=bounds,
            namespace=lambda name: namespace,
            clock=self.clock,
            chance=lambda: 1.0,
        )
        self.host.recorded = self.firing.recorded  # type: ignore[method-assign]
        limits = Limits()
        limits.window_page_timers = 10_000
        self.shard = Shard(Lease(0, 1, "node"), host=self.host, limits=limits)

    def due(self, *timers: Timer) -> None:
        """These are in the window and fall due now."""
        self.shard.step(self.clock.now())
        deliver(self.shard, self.host, *timers)
        self.shard.step(self.clock.now())
        self.firing.offer(self.shard, self.host.due)
        self.host.due = []

    def answer(self, id: str, answer: Answer = OK) -> None:
        attempt = next(a for a in self.carrier.sent if a.timer.id == id)
        self.carrier.sent.remove(attempt)
        attempt.answered(answer)

    @property
    def in_flight(self) -> list[str]:
        return [attempt.timer.id for attempt in self.carrier.sent]


def at_once(world: World, host: str, count: int) -> list[Timer]:
    return [
        timer(f"{host}{i}", at=world.clock.now() - count + i, url=f"http://{host}/x")
        for i in range(count)
    ]


def test_due_timers_start_in_their_order_up_to_the_bound_of_their_destination() -> None:
    world = World(Bounds())
    world.due(*at_once(world, "a", 5))
    assert world.in_flight == ["a0", "a1", "a2"]
    world.answer("a1")
    assert world.in_flight == ["a0", "a2", "a3"]


def test_a_destination_that_hangs_does_not_hold_up_another() -> None:
    world = World(Bounds())
    world.due(*at_once(world, "hangs", 9), *at_once(world, "quick", 3))
    assert "quick0" in world.in_flight
    for i in range(3):
        world.answer(f"quick{i}")
    assert world.in_flight == ["hangs0", "hangs1", "hangs2"] or len(world.in_flight) == 3


def test_on_a_full_node_every_destination_may_still_have_a_few_in_flight() -> None:
    world = World(Bounds(in_flight_max=3))
    world.due(*at_once(world, "hangs", 5))
    world.shard.window.add(timer("new0", at=world.clock.now(), url="http://new/x"))
    world.shard.window.add(timer("new1", at=world.clock.now(), url="http://new/x"))
    world.shard.window.add(timer("new2", at=world.clock.now(), url="http://new/x"))
    world.shard.step(world.clock.now())
    world.firing.offer(world.shard, world.host.due)
    assert set(world.in_flight[3:]) < {"new0", "new1", "new2"}
    assert len(world.in_flight) == 5
    world.answer(world.in_flight[3])
    assert len(world.in_flight) == 5


def test_destinations_take_turns_when_the_node_is_full() -> None:
    world = World(Bounds(in_flight_max=2, in_flight_per_destination_max=2))
    world.due(*at_once(world, "a", 6), *at_once(world, "b", 6), *at_once(world, "c", 6))
    order = []
    while world.carrier.sent:
        order.append(world.carrier.sent[0].timer.id[0])
        world.answer(world.in_flight[0])
        write_now(world.shard)
    assert order.count("a") == order.count("b") == order.count("c") == 6
    assert order.index("c") < 8


def test_nothing_is_left_behind_whatever_the_order_of_answers() -> None:
    world = World(Bounds(in_flight_max=3, unrecorded_max=4))
    world.due(*(t for host in "abcde" for t in at_once(world, host, 7)))
    fired = 0
    while world.carrier.sent or world.shard.outcomes:
        if world.carrier.sent:
            world.answer(world.in_flight[fired % len(world.in_flight)])
            fired += 1
        if world.firing.unrecorded >= 4 or not world.carrier.sent:
            write_now(world.shard)
    assert fired == 35
    assert world.firing.in_flight == world.firing.unrecorded == 0


def test_firing_waits_for_a_store_that_falls_behind() -> None:
    world = World(Bounds(unrecorded_max=2))
    world.due(*at_once(world, "a", 6))
    world.answer("a0")
    world.answer("a1")
    started = len(world.in_flight)
    world.answer("a2")
    assert len(world.in_flight) == started - 1
    write_now(world.shard)
    assert len(world.in_flight) == 3


def test_a_saturated_destination_has_its_excess_moved_to_a_later_time() -> None:
    world = World(Bounds())
    world.due(*at_once(world, "a", 10))
    world.clock.advance(1_500)
    world.firing.review(world.clock.now())
    batch, writes = world.shard.take_batch(100, 100)
    assert len(batch.puts) == 5  # 3 in flight, 2 parked.
    assert {t.id for t in batch.puts} == {"a5", "a6", "a7", "a8", "a9"}
    assert all(t.execute_at >= world.clock.now() + 1_000 for t in batch.puts)
    assert all(t.scheduled_at < world.clock.now() and t.attempts == 0 for t in batch.puts)
    world.shard.written(writes)
    for name in ("a0", "a1", "a2", "a3", "a4"):
        world.answer(name)
    assert world.in_flight == []


def test_what_is_moved_comes_back_when_its_turn_would_have_come() -> None:
    world = World(Bounds(in_flight_per_destination_max=3, in_flight_max=3))
    world.due(*at_once(world, "a", 60))
    for i in range(4):
        world.answer(f"a{i}")
    write_now(world.shard)
    world.clock.advance(1_000)
    world.firing.review(world.clock.now())  # Four a second: 20 may stay, the 53rd is far off.
    moved = sorted(
        t.execute_at - world.clock.now() for t in world.shard.take_batch(100, 100)[0].puts
    )
    assert len(moved) == 33
    assert moved[0] >= 5_000
    assert moved[-1] <= 60_000


def test_a_destination_that_keeps_up_has_nothing_moved() -> None:
    world = World(Bounds(in_flight_per_destination_max=3, in_flight_max=3))
    world.due(*at_once(world, "a", 40))
    for i in range(20):
        world.answer(f"a{i}")
    write_now(world.shard)
    world.clock.advance(1_000)
    world.firing.review(world.clock.now())  # 20 a second: 17 left are soon gone.
    assert world.shard.outcomes == []


def test_a_slow_destination_parks_no_newcomers_beyond_its_bound() -> None:
    world = World(Bounds())
    world.due(*at_once(world, "a", 10))
    world.clock.advance(1_500)
    world.firing.review(world.clock.now())
    write_now(world.shard)
    late = [timer(f"late{i}", at=world.clock.now(), url="http://a/x") for i in range(3)]
    for one in late:
        world.shard.window.add(one)
    world.shard.step(world.clock.now())
    world.firing.offer(world.shard, world.host.due)
    batch, _ = world.shard.take_batch(100, 100)
    assert {t.id for t in batch.puts} == {"late0", "late1", "late2"}


# -- what an answer becomes --------------------------------------------------------------


POLICY = RetryPolicy(max_attempts=3, initial_interval="10s")


@pytest.mark.parametrize(
    ("answer", "status", "error"),
    [
        (OK, "completed", None),
        (Answer(404, b"", "HTTP 404 from http://receiver/x"), "failed", "HTTP 404"),
        (BROKEN, "failed", "HTTP 503"),
        (Answer(0, b"", "timed out after 2 s"), "failed", "timed out after 2 s"),
    ],
)
def test_without_a_policy_one_attempt_decides(
    answer: Answer, status: str, error: str | None
) -> None:
    world = World(Bounds())
    one = timer("a", at=world.clock.now())
    world.due(one)
    world.answer("a", answer)
    batch, _ = world.shard.take_batch(10, 10)
    (finished,) = batch.finished
    assert (finished.status, finished.attempts, batch.removes) == (status, 1, [one])
    assert (error is None) == (finished.last_error is None)
    assert error is None or error in str(finished.last_error)


def test_with_a_policy_a_failure_is_tried_again_until_it_is_spent() -> None:
    world = World(Bounds())
    world.due(timer("a", at=world.clock.now(), retry=POLICY))
    first_at = world.clock.now()
    for attempt in (1, 2):
        world.answer("a", BROKEN)
        (again,) = world.shard.take_batch(10, 10)[0].puts
        assert (again.attempts, again.last_error) == (attempt, BROKEN.error)
        assert again.first_attempt_at == first_at
        world.shard.written([])
        world.shard._held.clear()
        world.shard.executing.clear()
        world.firing.recorded(1)
        world.clock.advance(again.execute_at - world.clock.now())
        world.shard.window.add(again)
        world.shard.step(world.clock.now())
        world.firing.offer(world.shard, world.host.due)
        world.host.due = []
    world.answer("a", BROKEN)
    batch, _ = world.shard.take_batch(10, 10)
    assert [f.status for f in batch.finished] == ["failed"]
    assert [f.attempts for f in batch.finished] == [3]


def test_a_timer_completed_after_a_failure_has_no_error() -> None:
    world = World(Bounds())
    world.due(timer("a", at=world.clock.now(), attempts=1, last_error="HTTP 503", retry=POLICY))
    world.answer("a", OK)
    (finished,) = world.shard.take_batch(10, 10)[0].finished
    assert (finished.status, finished.attempts, finished.last_error) == ("completed", 2, None)


def test_the_policy_of_the_namespace_serves_timers_without_one() -> None:
    namespace = Namespace(
        name="default",
        num_shards=1,
        history_retention_s=60,
        min_delay_s=1,
        retry_policy=POLICY,
        created_at=0,
        updated_at=0,
    )
    world = World(Bounds(), namespace)
    world.due(timer("a", at=world.clock.now()))
    world.answer("a", BROKEN)
    assert world.shard.take_batch(10, 10)[0].puts[0].attempts == 1


def test_a_callback_may_move_its_timer_and_attempts_count_anew() -> None:
    world = World(Bounds())
    world.due(timer("a", at=world.clock.now(), attempts=2, last_error="x", first_attempt_at=5))
    world.answer("a", Answer(200, b'{"ok": false, "nextExecuteAt": "2099-01-01T00:00:00Z"}'))
    (moved,) = world.shard.take_batch(10, 10)[0].puts
    assert moved.execute_at == moved.scheduled_at == 4_070_908_800_000
    assert (moved.attempts, moved.last_error, moved.first_attempt_at) == (0, None, None)


def test_a_next_time_in_the_past_means_the_least_delay_from_now() -> None:
    world = World(Bounds())
    world.due(timer("a", at=world.clock.now()))
    world.answer("a", Answer(200, b'{"ok":true,"nextExecuteAt":"1970-01-01T00:00:01Z"}'))
    (moved,) = world.shard.take_batch(10, 10)[0].puts
    assert moved.execute_at == world.clock.now() + 1_000


def test_a_namespace_without_history_records_nothing() -> None:
    namespace = Namespace(
        name="default",
        num_shards=1,
        history_retention_s=0,
        min_delay_s=1,
        retry_policy=None,
        created_at=0,
        updated_at=0,
    )
    world = World(Bounds(), namespace)
    world.due(timer("a", at=world.clock.now()))
    world.answer("a")
    batch, _ = world.shard.take_batch(10, 10)
    assert (len(batch.removes), batch.finished) == (1, [])


# -- stopping ------------------------------------------------------------------------------


def test_a_stopped_firing_starts_nothing() -> None:
    world = World(Bounds())
    world.due(*at_once(world, "a", 6))
    world.firing.stop()
    for name in list(world.in_flight):
        world.answer(name)
    assert world.in_flight == []
    write_now(world.shard)
    assert world.firing.unrecorded == 0


# -- trust ---------------------------------------------------------------------------------


def test_without_trust_nothing_starts_and_nothing_is_moved_until_it_is_back() -> None:
    world = World(Bounds())
    world.firing.trust(world.clock.monotonic() + 3.0)
    at = world.clock.now()
    world.due(timer("a", at=at), *(timer(f"b{i}", at=at + 3_000) for i in range(3)))
    world.clock.advance(3_000)
    world.shard.step(world.clock.now())
    world.firing.offer(world.shard, world.host.due)
    assert len(world.in_flight) == 1
    for name in list(world.in_flight):
        world.answer(name)  # What it frees is not given to the next.
    world.clock.advance(10_000)
    world.firing.review(world.clock.now())
    write_now(world.shard)
    assert (world.in_flight, world.firing.waiting) == ([], 3)
    world.firing.trust(world.clock.monotonic() + 3.0)
    assert (len(world.in_flight), world.firing.waiting) == (3, 0)


def test_what_was_started_and_not_sent_before_trust_ran_out_waits_until_it_is_back() -> None:
    world = World(Bounds())
    world.firing.trust(world.clock.monotonic() + 3.0)
    world.due(timer("a", at=world.clock.now()))
    (attempt,) = world.carrier.sent
    assert attempt.stands()
    world.clock.advance(3_000)  # A name that is looked up, a connection that is made.
    assert not attempt.stands()
    world.answer("a", NOT_SENT)
    assert world.shard.outcomes == []
    assert (world.firing.in_flight, world.firing.unrecorded) == (0, 0)
    world.shard.step(world.clock.now())
    world.firing.offer(world.shard, world.host.due)
    assert world.in_flight == []
    world.firing.trust(world.clock.monotonic() + 3.0)
    assert world.in_flight == ["a"]
    assert world.carrier.sent[0].number == 1


def test_an_attempt_of_a_shard_that_was_lost_or_left_stands_no_more() -> None:
    for lose in (
        lambda shard: shard.superseded([]),
        lambda shard: (shard.leave(), shard.cut_short()),
    ):
        world = World(Bounds())
        world.due(timer("a", at=world.clock.now()))
        (attempt,) = world.carrier.sent
        lose(world.shard)
        assert not attempt.stands()
        world.answer("a", NOT_SENT)
        assert world.firing.in_flight == 0
        assert len(world.shard.window) == 0


def test_an_attempt_waits_again_if_the_clock_is_set_back_before_it_is_sent() -> None:
    world = World(Bounds())
    world.due(timer("a", at=world.clock.now()))
    (attempt,) = world.carrier.sent
    world.clock.step_wall(-1_000)
    assert not attempt.stands()
    world.answer("a", NOT_SENT)
    assert len(world.shard.window) == 1
    world.clock.advance(1_000)
    world.shard.step(world.clock.now())
    world.firing.offer(world.shard, world.host.due[-1:])
    assert world.in_flight == ["a"]


def test_what_was_not_sent_lets_its_shard_leave() -> None:
    world = World(Bounds())
    world.due(timer("a", at=world.clock.now()))
    world.shard.leave()
    world.answer("a", NOT_SENT)
    assert world.host.vacated_shards == [world.shard]


async def test_a_create_over_what_was_not_sent_decides_what_becomes_of_it() -> None:
    for write_fails in (False, True):
        world = World(Bounds())
        old = timer("a", at=world.clock.now())
        world.due(old)
        new = timer("a", at=world.clock.now() + 5_000)
        assert world.shard.try_hold(old.uuid)
        world.answer("a", NOT_SENT)
        assert world.shard.window.get(old.uuid) is None
        if write_fails:
            world.shard.release(old.uuid)
        else:
            world.shard.stage(Write(old.uuid, put=new, ack=Acknowledgement(1)), generation=0)
            write_now(world.shard)
        assert world.shard.window.get(old.uuid) is (old if write_fails else new)
