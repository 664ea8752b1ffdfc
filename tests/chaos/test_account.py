"""The accounts of a chaos run: each thing that can go wrong is seen, and nothing else is."""

import pytest
from chaos.account import ATTEMPTS_MAX, TRAVEL_MS, Verdict, account, lateness_ms
from chaos.ledger import Arrival, Firing, Found, Kill, Kind, Op, Outcome, Record
from msgspec import structs

DUE = 10_000
DONE = {"a": Found(1, "completed")}


def op(
    kind: Kind = "create",
    revision: int = 1,
    *,
    at: int = 100,
    due: int = DUE,
    outcome: Outcome = "done",
    script: str = "ok",
) -> Op:
    return Op(
        kind=kind,
        sent=at - 1,
        ended=at,
        outcome=outcome,
        revision=revision,
        due=due,
        script=script,
    )


def arrived(at: int = DUE, revision: int = 1, *, attempt: int = 1, scheduled: int = DUE) -> Arrival:
    return Arrival(at, Firing("a", revision, attempt, scheduled))


def judged(
    ops: list[Op],
    arrivals: list[Arrival],
    found: dict[str, Found],
    *,
    kills: list[Kill] | None = None,
    forgetful: bool = False,
    ahead_ms: int = 0,
) -> Verdict:
    return account(
        [Record("a", "default", "a", ops)],
        arrivals,
        kills or [],
        found,
        forgetful=frozenset({"default"} if forgetful else ()),
        wall=lambda at: at + ahead_ms,
    )


def counts(verdict: Verdict) -> dict[str, int]:
    """What is not as it should be, by name."""
    names = ("lost", "early", "after_cancel", "superseded", "unexplained", "unasked", "wrong")
    return {name: getattr(verdict, name) for name in names if getattr(verdict, name)}


def test_a_timer_that_fired_once_is_in_order() -> None:
    verdict = judged([op()], [arrived()], DONE)
    assert (counts(verdict), verdict.problems, verdict.duplicates) == ({}, [], 0)


def test_a_timer_that_never_arrived_is_lost() -> None:
    assert counts(judged([op()], [], {"a": Found(1, "pending")})) == {"lost": 1}
    assert counts(judged([op()], [], DONE)) == {"lost": 1}
    assert counts(judged([op()], [], {}, forgetful=True)) == {"lost": 1}


def test_of_a_replaced_timer_the_last_schedule_must_arrive() -> None:
    ops = [op(), op("update", 2, at=200)]
    assert counts(judged(ops, [], {"a": Found(2, "pending")})) == {"lost": 1}
    assert counts(judged(ops, [arrived(revision=2)], {"a": Found(2, "completed")})) == {}


def test_a_callback_before_its_time_is_early() -> None:
    assert counts(judged([op()], [arrived(DUE - 1)], DONE)) == {"early": 1}


def test_a_retry_before_the_time_that_was_asked_for_is_early() -> None:
    rescheduled = arrived(DUE + 5, scheduled=DUE + 6)
    assert counts(judged([op()], [arrived(), rescheduled], DONE)) == {"early": 1}


def test_early_is_meant_by_the_servers_clock() -> None:
    assert counts(judged([op()], [arrived(DUE - 50)], DONE, ahead_ms=50)) == {}


def test_a_callback_after_an_acknowledged_cancel_is_told() -> None:
    ops = [op(), op("cancel", 0, at=DUE + 5)]
    found = {"a": Found(1, "canceled")}
    assert counts(judged(ops, [arrived(DUE + 5)], found)) == {}
    assert counts(judged(ops, [arrived(DUE + 6)], found)) == {"after_cancel": 1}


def test_a_callback_at_the_time_before_an_update_is_told() -> None:
    ops = [op(), op("update", 2, at=DUE + 5)]
    arrivals = [arrived(DUE + 6), arrived(DUE + 9, 2)]
    assert counts(judged(ops, arrivals, {"a": Found(2, "completed")})) == {"superseded": 1}


def test_a_create_may_come_over_a_callback_that_is_still_travelling_but_not_for_ever() -> None:
    ops = [op(), op("create", 2, at=DUE + 5)]
    found = {"a": Found(2, "completed")}
    late = DUE + 5 + TRAVEL_MS
    last = arrived(late + 9, 2)
    assert counts(judged(ops, [arrived(late), last], found)) == {}
    assert counts(judged(ops, [arrived(late + 1), last], found)) == {"superseded": 1}


@pytest.mark.parametrize("outcome", ["refused", "absent"])
def test_a_callback_of_what_was_refused_is_told(outcome: Outcome) -> None:
    assert counts(judged([op(outcome=outcome)], [arrived()], {})) == {"unasked": 1}


def test_a_callback_of_a_timer_that_nobody_asked_for_is_told() -> None:
    stranger = Arrival(DUE, Firing("b", 1, 1, DUE))
    assert counts(judged([op()], [arrived(), stranger], DONE)) == {"unasked": 1}


def test_more_attempts_than_the_policy_allows_are_told() -> None:
    late = arrived(attempt=ATTEMPTS_MAX + 1)
    assert counts(judged([op()], [late], DONE)) == {"wrong": 1}


@pytest.mark.parametrize(
    ("ops", "found"),
    [
        ([op()], {}),
        ([op()], {"a": Found(1, "failed")}),
        ([op(script="refuse")], DONE),
        ([op(), op("cancel", 0, at=DUE + 9)], DONE),
        ([op(outcome="refused")], {"a": Found(1, "pending")}),
    ],
)
def test_a_server_that_says_otherwise_is_wrong(ops: list[Op], found: dict[str, Found]) -> None:
    arrivals = [] if ops[0].outcome == "refused" else [arrived()]
    assert counts(judged(ops, arrivals, found)) == {"wrong": 1}


def test_what_nobody_can_tell_is_counted_apart() -> None:
    verdict = judged([op(outcome="maybe")], [], {})
    assert (counts(verdict), verdict.undecided) == ({}, 1)


def test_a_duplicate_is_explained_by_a_kill_that_found_it_unfinished() -> None:
    first, again = arrived(DUE), arrived(DUE + 5_000)
    kill = Kill(DUE + 1_000, frozenset({first.firing}))
    verdict = judged([op()], [first, again], DONE, kills=[kill])
    assert (counts(verdict), verdict.duplicates, verdict.problems) == ({}, 1, [])


@pytest.mark.parametrize(
    "kill",
    [
        None,
        Kill(DUE + 1_000, frozenset()),
        Kill(DUE + 9_000, frozenset({arrived().firing})),
        Kill(DUE - 9_000, frozenset({arrived().firing})),
        Kill(DUE + 1_000, frozenset({arrived(attempt=2).firing})),
    ],
)
def test_any_other_duplicate_is_not(kill: Kill | None) -> None:
    kills = [] if kill is None else [kill]
    verdict = judged([op()], [arrived(DUE), arrived(DUE + 5_000)], DONE, kills=kills)
    assert counts(verdict) == {"unexplained": 1}


def test_a_second_attempt_is_no_duplicate() -> None:
    verdict = judged([op()], [arrived(), arrived(DUE + 100, attempt=2)], DONE)
    assert (counts(verdict), verdict.duplicates) == ({}, 0)


def test_who_is_cut_off_may_go_on_for_a_while_and_be_repeated() -> None:
    both = [arrived(DUE), arrived(DUE + 9_000)]
    unfinished = frozenset({both[0].firing})
    dead = Kill(DUE - TRAVEL_MS - 1, unfinished)
    cut_off = Kill(DUE - TRAVEL_MS - 1, unfinished, until=DUE - TRAVEL_MS)
    assert counts(judged([op()], both, DONE, kills=[dead])) == {"unexplained": 1}
    assert counts(judged([op()], both, DONE, kills=[cut_off])) == {}


def test_what_was_asked_twice_may_fire_before_it_is_asked_again() -> None:
    twice = structs.replace(op(at=DUE + 500), again=True)
    assert counts(judged([twice], [arrived(DUE), arrived(DUE + 501)], DONE)) == {}
    late = [arrived(DUE + 501), arrived(DUE + 502)]
    assert counts(judged([twice], late, DONE)) == {"unexplained": 1}


def test_lateness_is_that_of_first_attempts_by_what_the_client_knew() -> None:
    def late(ops: list[Op], arrivals: list[Arrival]) -> int:
        return lateness_ms([Record("a", "default", "a", ops)], arrivals)

    assert late([op()], [arrived(DUE + 7), arrived(DUE + 90, attempt=2)]) == 7
    assert late([op()], [arrived(DUE + 7), arrived(DUE + 50)]) == 7
    assert late([op(at=DUE + 5)], [arrived(DUE + 7)]) == 2
    assert late([op(outcome="maybe")], [arrived(DUE + 7)]) == 0
