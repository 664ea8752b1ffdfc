"""The window, alone: order, what is live, giving up the tail."""

from hypothesis import given
from hypothesis import strategies as st

from duetime.model import CURSOR_MIN, Cursor, Timer
from duetime.window import Window
from tests.unit.engine import LAST_UUID, cursor, timer


def window_of(*timers: Timer, to: int = 10_000) -> Window:
    window = Window()
    window.extend(sorted(timers, key=cursor), Cursor(to, LAST_UUID))
    return window


def test_a_new_window_covers_nothing() -> None:
    window = Window()
    assert window.loaded_to == CURSOR_MIN
    assert window.next_at() is None
    assert window.take_due(10**15) == []


def test_due_timers_come_in_cursor_order_wherever_they_entered() -> None:
    paged = [timer(f"p{i}", at=i * 10) for i in range(5)]
    added = [timer(f"a{i}", at=i * 10) for i in range(5)]
    window = window_of(*paged)
    for one in reversed(added):
        window.add(one)
    assert window.take_due(30) == sorted(paged[:4] + added[:4], key=cursor)
    assert window.next_at() == 40


def test_a_timer_is_handed_out_at_its_instant_and_not_before() -> None:
    window = window_of(timer("a", at=100))
    assert window.take_due(99) == []
    assert [t.id for t in window.take_due(100)] == ["a"]
    assert window.take_due(100) == []


def test_a_dropped_timer_is_not_handed_out() -> None:
    first, second = timer("a", at=1), timer("b", at=2)
    window = window_of(first, second)
    window.drop(first.uuid)
    assert window.next_at() == 2
    assert window.take_due(5) == [second]


def test_a_timer_that_was_replaced_after_it_was_handed_out_cannot_start() -> None:
    old, new = timer("a", at=1), timer("a", at=50)
    window = window_of(old)
    assert window.take_due(1) == [old]
    window.drop(old.uuid)
    window.add(new)
    assert not window.start(old)
    assert window.take_due(50) == [new]
    assert window.start(new)
    assert not window.start(new)


def test_an_equal_timer_that_is_not_the_same_object_cannot_start() -> None:
    window = window_of(timer("a", at=1))
    assert not window.start(timer("a", at=1))


def test_trimming_gives_up_the_tail_and_the_cursor_with_it() -> None:
    timers = [timer(f"t{i}", at=i) for i in range(10)]
    window = window_of(*timers[:5])
    for late in timers[5:]:
        window.add(late)
    window.trim(3)
    assert len(window) == 3
    assert window.loaded_to == timers[2].cursor
    assert window.take_due(100) == timers[:3]


def test_trimming_keeps_a_timer_that_lies_in_the_window_twice_whole() -> None:
    timers = [timer(f"t{i}", at=i) for i in range(4)]
    window = window_of(*timers)
    window.add(timers[1])
    window.trim(2)
    assert window.get(timers[1].uuid) is timers[1]
    assert window.loaded_to == timers[1].cursor


def test_trimming_leaves_what_was_handed_out() -> None:
    timers = [timer(f"t{i}", at=i) for i in range(6)]
    window = window_of(*timers)
    handed_out = window.take_due(1)
    window.trim(1)
    assert [window.start(t) for t in handed_out] == [True, True]


def test_many_cancels_do_not_pile_up_in_memory() -> None:
    window = window_of()
    for i in range(20_000):
        one = timer(f"t{i}", at=5_000)
        window.add(one)
        window.drop(one.uuid)
    assert len(window._added) < 5_000


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["page", "add", "drop", "take", "trim"]),
            st.integers(0, 30),
            st.integers(0, 60),
        ),
        max_size=60,
    )
)
def test_the_window_agrees_with_a_plain_dictionary(steps: list[tuple[str, int, int]]) -> None:
    window = window_of(to=0)
    live: dict[bytes, Timer] = {}
    taken: dict[int, Timer] = {}  # By identity; holding them keeps an id from being reused.
    for what, number, at in steps:
        one = timer(f"t{number}", at=at)
        if what == "page":
            to = Cursor(window.loaded_to.execute_at + at, LAST_UUID)
            page = [
                t
                for t in (timer(f"p{number}-{i}", at=at + i) for i in range(3))
                if window.loaded_to < t.cursor <= to and t.uuid not in live
            ]
            window.extend(sorted(page, key=cursor), to)
            live.update({t.uuid: t for t in page})
        elif what == "add" and one.cursor <= window.loaded_to:
            window.add(one)
            live[one.uuid] = one
        elif what == "drop":
            assert window.drop(one.uuid) is live.pop(one.uuid, None)
        elif what == "take":
            due = window.take_due(at)
            expected = {id(t) for t in live.values() if t.execute_at <= at} - taken.keys()
            assert {id(t) for t in due} == expected
            assert due == sorted(due, key=cursor)
            taken.update({id(t): t for t in due})
        elif what == "trim":
            waiting = sorted((t for t in live.values() if id(t) not in taken), key=cursor)
            window.trim(number + 1)
            for late in waiting[number + 1 :]:
                del live[late.uuid]
            assert all(t.cursor <= window.loaded_to or id(t) in taken for t in live.values())
        assert len(window) == len(live)
        waiting_at = [t.execute_at for t in live.values() if id(t) not in taken]
        assert window.next_at() == min(waiting_at, default=None)
