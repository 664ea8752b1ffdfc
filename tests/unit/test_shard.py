"""The shard's state machine: every order in which reads, writes and callbacks can meet."""

import asyncio

import pytest

from duetime.model import CURSOR_MIN, Cursor, Finished, Lease, Timer
from duetime.shard import Shard
from duetime.store import DueRead, Page
from duetime.testing.clock import FakeClock
from duetime.writes import Acknowledgement, Attempt, Write
from tests.unit.engine import (
    LAST_UUID,
    Answers,
    RecordingHost,
    deliver,
    new_shard,
    opened,
    timer,
    write_now,
)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1_000_000)


@pytest.fixture
def host(clock: FakeClock) -> RecordingHost:
    return RecordingHost(clock)


def put(shard: Shard, one: Timer, *, ack: Acknowledgement | None = None) -> Write:
    assert shard.try_hold(one.uuid)
    write = Write(one.uuid, put=one, ack=ack)
    shard.stage(write, generation=shard.generation)
    return write


def cancel(shard: Shard, one: Timer) -> Write:
    assert shard.try_hold(one.uuid)
    write = Write(one.uuid, remove=one, finished=Finished(one, "canceled", 1, 0))
    shard.stage(write, generation=shard.generation)
    return write


def fire(shard: Shard, host: RecordingHost, one: Timer) -> Attempt:
    """Let the clock reach the timer and start it."""
    host.clock.advance(max(0, one.execute_at - host.clock.now()))
    shard.step(host.clock.now())
    assert one in host.due
    attempt = shard.start(one, None, Answers(), host.now())
    assert attempt is not None
    return attempt


class WideLimits:
    window_page_timers = 100
    lookahead_s_max = 300


# -- windows and pages ---------------------------------------------------------------


def test_the_first_step_reads_from_the_very_beginning_so_that_overdue_timers_fire(
    host: RecordingHost,
) -> None:
    shard = new_shard(host)
    shard.step(host.now())
    read, _ = host.reads[0]
    assert read.after == CURSOR_MIN
    assert read.until == host.now() + 300_000
    overdue = timer("old", at=5)
    deliver(shard, host, overdue)
    shard.step(host.now())
    assert host.due == [overdue]


def test_an_idle_shard_reads_nothing_until_its_window_runs_out(host: RecordingHost) -> None:
    shard = opened(host)
    wake_at = shard.step(host.now())
    assert wake_at >= host.now() + 290_000
    assert host.reads == []
    host.clock.advance(wake_at - host.now())
    shard.step(host.now())
    assert host.reads[0][0].after == shard.window.loaded_to


def test_a_long_backlog_is_loaded_page_by_page_as_it_leaves(host: RecordingHost) -> None:
    rows = [timer(f"t{i}", at=i) for i in range(11)]
    shard = opened(host, *rows)
    fired: list[Timer] = []
    while True:
        shard.step(host.now())
        for one in host.due:
            assert shard.start(one, None, Answers(), host.now()) is not None
            fired.append(one)
        host.due.clear()
        if not host.reads:
            shard.step(host.now())
        if not host.reads:
            break
        assert len(shard.window) <= 4
        deliver(shard, host, *rows)
    assert fired == rows


def test_without_room_the_next_page_waits_until_the_window_is_empty(host: RecordingHost) -> None:
    rows = [timer(f"t{i}", at=host.now() + i) for i in range(9)]
    shard = opened(host, *rows)
    host.room = 0
    for one in rows[:3]:
        fire(shard, host, one)
    shard.step(host.now())
    assert host.reads == []
    fire(shard, host, rows[3])
    shard.step(host.now())
    assert host.reads[0][0].after == rows[3].cursor


def test_without_room_a_shard_looks_again_soon_because_nobody_tells_it_of_room(
    host: RecordingHost,
) -> None:
    rows = [timer(f"t{i}", at=host.now() + i) for i in range(9)]
    shard = opened(host, *rows)
    host.room = 0
    for one in rows[:3]:
        fire(shard, host, one)
    assert shard.step(host.now()) <= host.now() + 1_000


def test_timers_that_leave_the_window_without_firing_make_way_for_the_next_page(
    host: RecordingHost,
) -> None:
    rows = [timer(f"t{i}", at=host.now() - 9 + i) for i in range(9)]
    shard = opened(host, *rows)
    shard.step(host.now())  # Handed out: what parks them does not start them.
    cancel(shard, rows[0])
    assert shard.defer(rows[1], timer("t1", at=host.now() + 400_000))
    host.wakes.clear()
    write_now(shard)
    assert 0 in host.wakes
    shard.step(host.now())
    assert host.reads[0][0].after == rows[3].cursor


def test_many_shards_start_with_small_pages_and_busy_ones_grow(host: RecordingHost) -> None:
    host.share = 2
    clock = host.clock
    shard = Shard(Lease(0, 1, "node"), host=host, limits=WideLimits())
    rows = [timer(f"t{i:03}", at=clock.now() - 500 + i) for i in range(200)]
    limits = []
    while True:
        shard.step(clock.now())
        for one in host.due:
            shard.start(one, None, Answers(), host.now())
        host.due.clear()
        shard.step(clock.now())
        if not host.reads:
            break
        limits.append(host.reads[0][0].limit)
        deliver(shard, host, *rows)
    assert limits == [10, 20, 40, 80, 100]


def test_too_many_near_timers_make_the_window_give_up_its_tail(host: RecordingHost) -> None:
    shard = opened(host)
    near = [timer(f"t{i:02}", at=host.now() + 1_000 + i) for i in range(30)]
    host.room = -1
    for one in near:
        put(shard, one)
    write_now(shard)
    assert len(shard.window) == 4
    assert shard.window.loaded_to == near[3].cursor
    for one in near[:4]:
        fire(shard, host, one)
    shard.step(host.now())
    deliver(shard, host, *near)
    shard.step(host.now())
    assert shard.window.get(near[4].uuid) is near[4]


# -- a page and a write that overlap ---------------------------------------------------


def read_under_way(host: RecordingHost) -> tuple[Shard, DueRead, int]:
    shard = new_shard(host)
    shard.step(host.now())
    read, generation = host.reads.pop()
    return shard, read, generation


def everything(read: DueRead, *timers: Timer) -> Page:
    return Page(sorted(timers, key=lambda t: t.cursor), False)


@pytest.mark.parametrize("seen_by_page", [True, False])
def test_a_timer_put_while_a_page_is_read_is_in_the_window_once(
    host: RecordingHost, seen_by_page: bool
) -> None:
    shard, read, generation = read_under_way(host)
    new = timer("new", at=host.now() + 500)
    put(shard, new)
    write_now(shard)
    page = everything(read, new) if seen_by_page else everything(read)
    shard.loaded(read, page, generation=generation)
    host.clock.advance(500)
    shard.step(host.now())
    assert host.due == [new]


@pytest.mark.parametrize("durable_first", [True, False])
def test_a_timer_canceled_while_a_page_is_read_does_not_fire(
    host: RecordingHost, durable_first: bool
) -> None:
    shard, read, generation = read_under_way(host)
    doomed = timer("doomed", at=host.now() + 500)
    cancel(shard, doomed)
    if durable_first:
        write_now(shard)
    shard.loaded(read, everything(read, doomed), generation=generation)
    if not durable_first:
        write_now(shard)
    host.clock.advance(1_000)
    shard.step(host.now())
    assert host.due == []


def test_a_timer_moved_while_a_page_is_read_fires_at_its_new_time_only(host: RecordingHost) -> None:
    shard, read, generation = read_under_way(host)
    old, new = timer("a", at=host.now() + 500), timer("a", at=host.now() + 900)
    put(shard, new)
    write_now(shard)
    shard.loaded(read, everything(read, old), generation=generation)
    host.clock.advance(2_000)
    shard.step(host.now())
    assert host.due == [new]


def test_a_timer_put_beyond_the_page_that_arrives_is_left_to_the_store(host: RecordingHost) -> None:
    shard, read, generation = read_under_way(host)
    far = timer("far", at=host.now() + 299_000)
    put(shard, far)
    write_now(shard)
    near = [timer(f"n{i}", at=host.now() + i) for i in range(4)]
    shard.loaded(read, Page(near, True), generation=generation)
    assert shard.window.get(far.uuid) is None


def test_a_row_set_aside_comes_back_when_its_operation_writes_nothing(host: RecordingHost) -> None:
    shard, read, generation = read_under_way(host)
    one = timer("a", at=host.now() + 500)
    assert shard.try_hold(one.uuid)
    shard.loaded(read, everything(read, one), generation=generation)
    shard.release(one.uuid)
    host.clock.advance(500)
    shard.step(host.now())
    assert host.due == [one]


def test_the_row_of_a_timer_that_is_executing_is_not_loaded_again(host: RecordingHost) -> None:
    one = timer("a", at=host.now() + 10)
    rest = [timer(f"r{i}", at=host.now() + 20 + i) for i in range(6)]
    shard = opened(host, one, *rest)
    fire(shard, host, one)
    shard.restart(Lease(0, 2, "node"))
    host.due.clear()
    shard.step(host.now())
    deliver(shard, host, one, *rest)
    shard.step(host.now())
    assert one not in host.due


# -- firing, canceling, replacing --------------------------------------------------------


def test_a_timer_held_by_a_cancel_cannot_start_and_starts_if_the_cancel_is_given_up(
    host: RecordingHost,
) -> None:
    one = timer("a", at=host.now() + 10)
    shard = opened(host, one)
    host.clock.advance(10)
    shard.step(host.now())
    assert shard.try_hold(one.uuid)
    assert shard.start(one, None, Answers(), host.now()) is None
    shard.release(one.uuid)
    host.due.clear()
    shard.step(host.now())
    assert host.due == [one]
    assert shard.start(one, None, Answers(), host.now()) is not None


def test_a_canceled_timer_that_firing_still_holds_cannot_start(host: RecordingHost) -> None:
    one = timer("a", at=host.now() + 10)
    shard = opened(host, one)
    host.clock.advance(10)
    shard.step(host.now())
    cancel(shard, one)
    write_now(shard)
    assert shard.start(one, None, Answers(), host.now()) is None


def test_a_timer_handed_out_before_the_clock_was_set_back_waits_for_its_instant_again(
    host: RecordingHost,
) -> None:
    one = timer("a", at=host.now() + 10)
    shard = opened(host, one)
    host.clock.advance(10)
    shard.step(host.now())
    host.clock.step_wall(-60_000)
    assert shard.start(one, None, Answers(), host.now()) is None
    assert host.wakes[-1] == one.execute_at
    host.due.clear()
    fire(shard, host, one)


def test_a_timer_passed_over_while_held_fires_although_the_clock_was_set_back(
    host: RecordingHost,
) -> None:
    one = timer("a", at=host.now() + 10)
    shard = opened(host, one)
    host.clock.advance(10)
    shard.step(host.now())
    assert shard.try_hold(one.uuid)
    assert shard.start(one, None, Answers(), host.now()) is None
    host.clock.step_wall(-60_000)
    shard.release(one.uuid)
    host.due.clear()
    fire(shard, host, one)


def test_a_finished_attempt_is_removed_and_recorded_in_one_batch(host: RecordingHost) -> None:
    one = timer("a", at=host.now() + 10)
    shard = opened(host, one)
    attempt = fire(shard, host, one)
    finished = Finished(one, "completed", host.now(), 1)
    assert shard.conclude(attempt, remove=one, finished=finished)
    assert one.uuid in shard.executing  # Until it is durable.
    batch, writes = shard.take_batch(10, 10)
    assert (batch.removes, batch.finished, batch.puts) == ([one], [finished], [])
    shard.written(writes)
    assert shard.executing == {}
    assert host.outcomes == 1


def test_a_retry_inside_the_window_is_fired_from_memory(host: RecordingHost) -> None:
    one = timer("a", at=host.now() + 10)
    shard = opened(host, one)
    attempt = fire(shard, host, one)
    again = timer("a", at=host.now() + 100, attempts=1)
    shard.conclude(attempt, put=again)
    write_now(shard)
    second = fire(shard, host, again)
    assert second.number == 2


def test_a_create_over_an_executing_timer_wins_and_the_old_result_does_not_touch_it(
    host: RecordingHost,
) -> None:
    old, new = timer("a", at=host.now() + 10), timer("a", at=host.now() + 500)
    shard = opened(host, old)
    attempt = fire(shard, host, old)
    put(shard, new)
    write_now(shard)
    assert shard.executing == {}
    finished = Finished(old, "completed", host.now(), 1)
    assert not shard.conclude(attempt, remove=old, finished=finished)
    assert shard.requests == shard.outcomes == []
    fire(shard, host, new)


def test_a_result_that_arrives_while_a_create_is_written_over_it_is_dropped(
    host: RecordingHost,
) -> None:
    old, new = timer("a", at=host.now() + 10), timer("a", at=host.now() + 500)
    shard = opened(host, old)
    attempt = fire(shard, host, old)
    put(shard, new)
    _, writes = shard.take_batch(10, 10)
    assert shard.conclude(attempt, remove=old, finished=Finished(old, "completed", 1, 1))
    shard.written(writes)
    assert shard.requests == shard.outcomes == []
    assert host.outcomes == 1  # It was counted as unrecorded and will never be recorded.
    fire(shard, host, new)


def test_a_result_that_arrives_while_a_create_over_it_fails_is_still_recorded(
    host: RecordingHost,
) -> None:
    old, new = timer("a", at=host.now() + 10), timer("a", at=host.now() + 500)
    shard = opened(host, old)
    attempt = fire(shard, host, old)
    write = put(shard, new)
    _, writes = shard.take_batch(10, 10)
    finished = Finished(old, "completed", 1, 1)
    shard.conclude(attempt, remove=old, finished=finished)
    shard.failed(writes)
    assert write.error is not None
    shard.restart(Lease(0, 2, "node"))
    batch, _ = shard.take_batch(10, 10)
    assert batch.finished == [finished]
    assert batch.lease.version == 2


async def test_operations_on_one_key_take_turns(host: RecordingHost) -> None:
    shard = opened(host)
    first, second = timer("a", at=host.now() + 500), timer("a", at=host.now() + 900)
    put(shard, first)
    turn = asyncio.create_task(shard.hold(second.uuid))
    await asyncio.sleep(0)
    assert not turn.done()
    write_now(shard)
    await turn
    assert not shard.try_hold(second.uuid)
    shard.stage(Write(second.uuid, put=second), generation=shard.generation)
    write_now(shard)
    assert shard.window.get(first.uuid) is second


async def test_whoever_gives_up_waiting_for_a_key_does_not_block_the_next(
    host: RecordingHost,
) -> None:
    shard = opened(host)
    one = timer("a", at=host.now() + 500)
    put(shard, one)
    impatient = asyncio.create_task(shard.hold(one.uuid))
    patient = asyncio.create_task(shard.hold(one.uuid))
    await asyncio.sleep(0)
    impatient.cancel()
    write_now(shard)
    await patient
    shard.release(one.uuid)
    assert shard.try_hold(one.uuid)


async def test_a_turn_that_is_canceled_in_the_moment_it_comes_is_passed_on(
    host: RecordingHost,
) -> None:
    shard = opened(host)
    one = timer("a", at=host.now() + 500)
    put(shard, one)
    waiting = asyncio.create_task(shard.hold(one.uuid))
    await asyncio.sleep(0)
    write_now(shard)  # Its turn has come, its task has not run.
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert shard.try_hold(one.uuid)


# -- what goes wrong -----------------------------------------------------------------------


async def test_a_failed_write_refuses_callers_stops_firing_and_asks_for_a_new_lease(
    host: RecordingHost,
) -> None:
    one = timer("a", at=host.now() + 10)
    shard = opened(host, one)
    ack = Acknowledgement(1)
    write = put(shard, timer("b", at=host.now() + 50), ack=ack)
    _, writes = shard.take_batch(10, 10)
    shard.failed(writes)
    await ack.future
    assert "not known" in str(write.error)
    assert host.recovering == [shard]
    host.clock.advance(100)
    shard.step(host.now())
    assert host.due == []
    late = put(shard, timer("c", at=host.now() + 50))
    assert late.error is not None


def test_after_a_new_lease_the_window_is_loaded_from_the_start(host: RecordingHost) -> None:
    one = timer("a", at=host.now() + 10)
    shard = opened(host, one)
    put(shard, timer("b", at=host.now() + 50))
    _, writes = shard.take_batch(10, 10)
    shard.failed(writes)
    shard.restart(Lease(0, 7, "node"))
    shard.step(host.now())
    assert host.reads[0][0].after == CURSOR_MIN
    deliver(shard, host, one)
    fire(shard, host, one)


def test_a_page_asked_for_under_the_old_lease_is_thrown_away(host: RecordingHost) -> None:
    shard, read, generation = read_under_way(host)
    shard.failed([])
    shard.restart(Lease(0, 2, "node"))
    shard.loaded(read, everything(read, timer("a", at=5)), generation=generation)
    assert len(shard.window) == 0


def test_what_was_decided_before_a_restart_is_not_written_after_it(host: RecordingHost) -> None:
    one = timer("a", at=host.now() + 10)
    shard = opened(host, one)
    assert shard.try_hold(one.uuid)
    generation = shard.generation
    shard.failed([])
    shard.restart(Lease(0, 2, "node"))
    write = Write(one.uuid, remove=one)
    shard.stage(write, generation=generation)
    assert write.error is not None
    assert shard.requests == shard.outcomes == []
    assert shard.try_hold(one.uuid)


def test_a_row_set_aside_comes_back_when_its_operation_is_refused_after_a_restart(
    host: RecordingHost,
) -> None:
    one = timer("a", at=host.now() + 10)
    shard = opened(host, one)
    assert shard.try_hold(one.uuid)
    generation = shard.generation
    shard.failed([])
    shard.restart(Lease(0, 2, "node"))
    shard.step(host.now())
    deliver(shard, host, one)
    shard.stage(Write(one.uuid, remove=one), generation=generation)
    fire(shard, host, one)


def test_a_superseded_shard_writes_and_fires_nothing_more(host: RecordingHost) -> None:
    running, waiting = timer("a", at=host.now() + 10), timer("b", at=host.now() + 20)
    shard = opened(host, running, waiting)
    attempt = fire(shard, host, running)
    write = put(shard, timer("c", at=host.now() + 500))
    _, writes = shard.take_batch(10, 10)
    shard.superseded(writes)
    assert host.lost_shards == [shard]
    assert "another node" in str(write.error)
    assert not shard.conclude(attempt, remove=running)
    host.clock.advance(100)
    shard.step(host.now())
    assert waiting not in host.due


def test_a_page_that_cannot_be_read_is_asked_for_again(host: RecordingHost) -> None:
    shard, _, generation = read_under_way(host)
    shard.read_failed(generation=generation)
    shard.step(host.now())
    assert len(host.reads) == 1


def test_a_window_that_ends_ahead_of_a_clock_that_was_set_back_goes_on_from_its_end(
    host: RecordingHost,
) -> None:
    rows = [timer(f"t{i}", at=host.now() + 200_000 + i) for i in range(6)]
    shard = opened(host, *rows)
    host.clock.step_wall(-600_000)
    for one in rows[:4]:
        cancel(shard, one)
    write_now(shard)
    shard.step(host.now())
    deliver(shard, host, *rows[4:])
    host.clock.step_wall(600_000)
    host.clock.advance(199_000)
    shard.step(host.now())
    deliver(shard, host, *rows[4:])
    fire(shard, host, rows[4])


# -- the safety read ------------------------------------------------------------------------


def test_the_safety_read_takes_in_what_memory_did_not_know(host: RecordingHost) -> None:
    shard = opened(host)
    host.clock.advance(60_000)
    overlooked = timer("a", at=host.now() - 30_000)
    assert shard.safety_read(host.now()) is not None
    missed = shard.checked(Page([overlooked], False), generation=shard.generation)
    assert missed == [overlooked]
    shard.step(host.now())
    assert host.due == [overlooked]


def test_the_safety_read_leaves_to_the_next_page_what_lies_beyond_the_window_at_its_last_instant(
    host: RecordingHost,
) -> None:
    rows = sorted((timer(f"t{i}", at=5) for i in range(6)), key=lambda t: t.cursor)
    shard = opened(host, *rows)
    host.clock.advance(60_000)
    assert shard.safety_read(host.now()) is not None
    assert shard.checked(Page(rows, False), generation=shard.generation) == []


def test_the_safety_read_does_not_fire_what_was_completed_while_it_read(
    host: RecordingHost,
) -> None:
    one = timer("a", at=host.now() + 10)
    shard = opened(host, one)
    attempt = fire(shard, host, one)
    host.clock.advance(60_000)
    assert shard.safety_read(host.now()) is not None
    shard.conclude(attempt, remove=one)
    write_now(shard)
    assert shard.checked(Page([one], False), generation=shard.generation) == []


def test_the_safety_read_leaves_alone_what_is_waiting_or_executing(host: RecordingHost) -> None:
    executing, parked = timer("a", at=host.now() + 10), timer("b", at=host.now() + 20)
    shard = opened(host, executing, parked)
    fire(shard, host, executing)
    host.clock.advance(60_000)
    shard.step(host.now())
    assert shard.safety_read(host.now()) is not None
    page = Page([executing, parked], False)
    assert shard.checked(page, generation=shard.generation) == []
    assert shard.start(parked, None, Answers(), host.now()) is not None


def test_a_window_never_covers_less_than_it_says(host: RecordingHost) -> None:
    shard = opened(host)
    assert shard.window.loaded_to == Cursor(host.now() + 300_000, LAST_UUID)
