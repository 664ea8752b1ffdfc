"""The rules a world must keep, each a function that raises `Broken` with what to look at.

Their arguments are facts, gathered by the ledger; none asks the engine what is right.
"""

from collections.abc import Sequence

from duetime.model import Finished, Namespace, Timer
from duetime.store import Batch
from duetime.writes import Attempt
from sim.facts import Op, Policy, Sent, State, TimerFacts, same_schedule

DEFER_MS_MAX = 60_000
NOTICED_US = 20_000_000  # A heartbeat that measures the clock, or trust that runs out without.


class Broken(Exception):
    """A rule was broken; the message says by which timer, and how."""


def shown(timer: Timer | None) -> str:
    if timer is None:
        return "nothing"
    token = (timer.metadata or b"?").decode()
    return f"[{token} at {timer.execute_at} after {timer.attempts} attempts]"


# -- at the receivers -----------------------------------------------------------------------


def fires_not_early(facts: TimerFacts, timer: Timer, wall: int, lead_ms: int) -> None:
    """Nothing fires before its time, by true time plus how far this node's clock is ahead."""
    if wall < timer.execute_at:
        raise Broken(
            f"{facts} fired {timer.execute_at - wall} ms before its time {timer.execute_at}, by a"
            f" clock that is {lead_ms} ms ahead of true time"
        )


def fires_only_what_stands(facts: TimerFacts, attempt: Attempt) -> None:
    """Nothing fires after a cancel, at a superseded time, or once it has finished."""
    timer, row = attempt.timer, facts.row
    if row is not None and same_schedule(row, timer):
        return
    state = facts.states[-1] if facts.states else None
    if row is not None:
        raise Broken(f"{facts} fired as {shown(timer)}, but what stands is {shown(row)}")
    what = "was never stored"
    if state is not None:
        what = "is gone"
        if state.finished is not None:
            what = f"is {state.finished.status} since {state.finished.at}"
    raise Broken(f"{facts} fired as {shown(timer)}, but {what}")


def fires_once_for_each_owner(facts: TimerFacts, attempt: Attempt, process: str) -> None:
    """One attempt is made once, as long as the same node keeps the same hold on its shard."""
    for sent in facts.sent:
        if sent.attempt.shard is attempt.shard and same_schedule(sent.timer, attempt.timer):
            state = "not answered" if sent.meaning is None else f"answered {sent.meaning.what}"
            raise Broken(
                f"{facts}: attempt {attempt.number} of {shown(attempt.timer)} was sent twice by"
                f" {process}, which never lost shard {facts.shard}; first at {sent.us} us ({state})"
            )


def fires_once_in_calm(facts: TimerFacts, attempt: Attempt, process: str) -> None:
    """Where nothing goes wrong nothing is sent twice, whoever owns the shard meanwhile."""
    for sent in facts.sent:
        if same_schedule(sent.timer, attempt.timer):
            raise Broken(
                f"{facts}: attempt {attempt.number} of {shown(attempt.timer)} was sent by"
                f" {sent.process} at {sent.us} us and again by {process}, and nothing had failed"
            )


def a_wrong_clock_fires_nothing(
    facts: TimerFacts, process: str, lead_ms: int, lead_ms_max: int, wrong_us: int
) -> None:
    """A node whose clock is too far from the database's gives up its shards before long."""
    if abs(lead_ms) > lead_ms_max and wrong_us > NOTICED_US:
        raise Broken(
            f"{facts} was fired by {process}, whose clock is {lead_ms} ms off (bound:"
            f" {lead_ms_max}) for {wrong_us / 1e6:.1f} s"
        )


def stops_when_superseded(
    facts: TimerFacts, process: str, unaware_us: int, unaware_us_max: int
) -> None:
    """A node whose shard was taken over learns of it, or stops by itself, before long."""
    if unaware_us > unaware_us_max:
        raise Broken(
            f"{facts} was fired by {process} {unaware_us / 1e6:.1f} s after shard {facts.shard} was"
            f" claimed by another; {unaware_us_max / 1e6:.0f} s are enough to notice"
        )


def attempts_stay_within_policy(facts: TimerFacts, attempt: Attempt, policy: Policy | None) -> None:
    """No attempt beyond the policy's number of them; one where there is no policy."""
    number_max = 1 if policy is None else policy.max_attempts
    if attempt.number != attempt.timer.attempts + 1:
        raise Broken(f"{facts}: attempt {attempt.number} follows {attempt.timer.attempts}")
    if number_max is not None and attempt.number > number_max:
        raise Broken(f"{facts}: attempt {attempt.number} of at most {number_max}")


# -- in the database ------------------------------------------------------------------------


def writes_under_the_newest_lease(batch: Batch, newest: int, process: str) -> None:
    """No write takes effect under a superseded lease."""
    if batch.lease.version != newest:
        raise Broken(
            f"shard {batch.lease.shard}: {process} wrote {len(batch.puts)} puts and"
            f" {len(batch.removes)} removes under lease v{batch.lease.version}; v{newest} is"
            " the newest claim"
        )


def keeps_a_newer_schedule(facts: TimerFacts, old: Timer) -> None:
    """What came of an attempt does not touch a schedule that was acknowledged since."""
    op = facts.row_op
    if op is not None and op.result != "unknown":
        raise Broken(
            f"{facts}: the outcome of {shown(old)} was written over {shown(facts.row)} of {op}"
            f" ({op.result or 'under way'})"
        )


def a_put_was_asked_for(facts: TimerFacts, op: Op | None, put: Timer) -> None:
    """Every new schedule in the database is some request's, stored once and as asked."""
    if op is None:
        raise Broken(f"{facts}: {shown(put)} was stored and nobody asked for it")
    if op.result not in (None, "unknown"):
        raise Broken(f"{facts}: {op} ended as {op.result} ({op.error}) and was stored later")
    if put.attempts or put.last_error or put.first_attempt_at:
        raise Broken(f"{facts}: {op} was stored with {put.attempts} attempts behind it")
    if op.execute_at is not None:
        if put.execute_at < op.execute_at:
            raise Broken(f"{facts}: {op} asked for {op.execute_at}, stored {put.execute_at}")
    elif facts.row is None or put.execute_at != facts.row.execute_at:
        raise Broken(f"{facts}: {op} names no time and moved {shown(facts.row)} to {shown(put)}")


def what_has_ended_stays_so(facts: TimerFacts, put: Timer) -> None:
    """A timer that was finished, or canceled, does not come back by what an attempt left."""
    raise Broken(f"{facts}: {shown(put)} was stored again after it had ended")


def a_move_is_a_deferral(
    facts: TimerFacts, row: Timer, put: Timer, wall: int | None, under_way: Sent | None
) -> None:
    """A timer that was not attempted moves only to make way for others, and not for long."""
    if put.attempts != row.attempts or put.scheduled_at != row.scheduled_at:
        raise Broken(f"{facts}: {shown(row)} became {shown(put)} without an answer to explain it")
    if under_way is not None:
        raise Broken(f"{facts}: {shown(row)} was deferred while {under_way.process} called back")
    if put.execute_at <= row.execute_at:
        raise Broken(f"{facts}: {shown(row)} was deferred to {put.execute_at}, which is earlier")
    if wall is not None and (row.execute_at > wall or put.execute_at > wall + DEFER_MS_MAX + 1):
        raise Broken(f"{facts}: {shown(row)} was deferred to {put.execute_at} at {wall}")


def an_answer_has_its_effect(
    facts: TimerFacts,
    sent: Sent,
    put: Timer | None,
    policy: Policy | None,
    min_delay_ms: int,
) -> None:
    """The outcome that is written is what the receiver's answer means, policy applied."""
    meaning, wall = sent.meaning, sent.replied_wall
    assert meaning is not None
    said = f"{facts}: the receiver said {meaning.what} to attempt {sent.number} at {wall}"
    if meaning.what == "completed" or meaning.what == "given up":
        if put is not None:
            raise Broken(f"{said}, and it became {shown(put)}")
        return
    if meaning.what == "rescheduled":
        at = meaning.at if meaning.at > wall else wall + min_delay_ms
        if put is None or (put.execute_at, put.scheduled_at, put.attempts) != (at, at, 0):
            raise Broken(f"{said} to {at}, and it became {shown(put)}")
        return
    may_end, low, high = retry_range(sent, policy)
    if put is None:
        if not may_end:
            raise Broken(f"{said}, its policy allows more attempts, and it was removed")
    elif low is None or high is None:
        raise Broken(f"{said}, its policy allows no more attempts, and it became {shown(put)}")
    elif put.attempts != sent.number or not low <= put.execute_at <= high:
        raise Broken(f"{said}; a retry is due between {low} and {high}, and it became {shown(put)}")


def retry_range(sent: Sent, policy: Policy | None) -> tuple[bool, int | None, int | None]:
    """Whether a failed attempt may have been the last, and when the next may be due."""
    if policy is None or (policy.max_attempts is not None and sent.number >= policy.max_attempts):
        return True, None, None
    interval = min(
        policy.initial_ms * policy.multiplier ** (sent.number - 1), policy.interval_ms_max
    )
    low, high = sent.replied_wall + int(interval * 0.8), sent.replied_wall + int(interval)
    if policy.duration_ms is None:
        return False, low, high
    last = (sent.timer.first_attempt_at or sent.attempt.started_at) + policy.duration_ms
    if low > last:
        return True, None, None
    return high > last, low, min(high, last)


def outcomes_end_with_their_owner(facts: TimerFacts, sent: Sent, claimers: Sequence[str]) -> None:
    """What came of an attempt is void once another node has owned the shard: it may have sent,
    canceled or changed the timer since."""
    others = [owner for owner in claimers if owner != sent.process]
    if others:
        raise Broken(
            f"{facts}: the outcome of attempt {sent.number} by {sent.process} was written although"
            f" {others[0]} had claimed shard {facts.shard} since"
        )


def a_removal_is_explained(facts: TimerFacts, row: Timer, sent: Sent | None, op: Op | None) -> None:
    """A timer leaves the database by an answer or by a cancel. Otherwise it was lost."""
    if sent is None and op is None:
        raise Broken(f"{facts}: {shown(row)} was removed; no answer and no cancel explains it")


def history_agrees(
    facts: TimerFacts, finished: Finished | None, sent: Sent | None, op: Op | None, kept: bool
) -> None:
    """What history says of a timer is what its receiver said, or that it was canceled."""
    if finished is None:
        if kept:
            raise Broken(f"{facts} was removed and its history was not recorded")
        return
    if not kept:
        raise Broken(f"{facts}: history was recorded in a namespace that keeps none")
    if sent is not None and sent.meaning is not None:
        expected = "completed" if sent.meaning.what == "completed" else "failed"
        if (finished.status, finished.attempts) != (expected, sent.number):
            raise Broken(
                f"{facts}: history says {finished.status} after {finished.attempts} attempts, the"
                f" receiver saw {sent.number} and said {sent.meaning.what}"
            )
    elif op is not None and finished.status != "canceled":
        raise Broken(f"{facts}: {op} was recorded as {finished.status}")
    elif op is None:
        raise Broken(f"{facts}: history says {finished.status} and nothing explains it")


def history_is_kept(namespace: Namespace, before: int, wall: int, process: str) -> None:
    """History is deleted when its time is over, and not sooner."""
    newest = wall - namespace.history_retention_s * 1000
    if before > newest:
        raise Broken(
            f"{process} deleted the history of {namespace.name} up to {before}, which is to be"
            f" kept from {newest} on"
        )


# -- at the clients -------------------------------------------------------------------------


def an_acknowledged_request_is_stored(facts: TimerFacts, op: Op, clustered: bool) -> None:
    """Who was told that it is done can rely on it: it is in the database by then."""
    finished = facts.states[-1].finished
    # In a cluster a cancel may be asked of a second owner: it has succeeded whoever canceled.
    is_another = (
        clustered and op.kind == "cancel" and finished is not None and finished.status == "canceled"
    )
    if op.result == "ok" and op.landed_us is None and not is_another:
        raise Broken(f"{facts}: {op} was acknowledged and is not in the database")
    if op.result == "refused" and op.landed_us is not None:
        raise Broken(f"{facts}: {op} was refused ({op.error}) and is in the database")


def an_answer_was_true(
    facts: TimerFacts, what: str, states: Sequence[State], matches: Sequence[bool]
) -> None:
    """A reader is shown what stood at some instant between question and answer."""
    if not any(matches):
        stood = ", ".join(
            f"{shown(state.row) if state.row else _gone(state)} since {state.since_us} us"
            for state in states
        )
        raise Broken(f"{facts}: a reader was told {what}; what stood meanwhile: {stood}")


def _gone(state: State) -> str:
    return "nothing" if state.finished is None else f"{state.finished.status}"


def a_list_shows_each_once(
    namespace: str, missing: Sequence[TimerFacts], twice: Sequence[str], wrong: Sequence[str]
) -> None:
    """A list holds each timer that stood all the while and matches, once and as it is."""
    for facts in missing:
        raise Broken(f"a list of {namespace} lacks {facts}, which stands as {shown(facts.row)}")
    for key in twice:
        raise Broken(f"a list of {namespace} shows {key} twice")
    for what in wrong:
        raise Broken(f"a list of {namespace} shows {what}")


def requests_are_answered(facts: TimerFacts | None, op: str, waited_s: float, why: str) -> None:
    """Once everything is healed, every request is answered, and not refused as unavailable."""
    raise Broken(f"{facts or ''}: {op} has no answer after {waited_s:.1f} s: {why}")


# -- in between -----------------------------------------------------------------------------


def memory_stays_bounded(process: str, what: str, count: int, count_max: int) -> None:
    """Windows, queues and callbacks under way stay within what the settings say."""
    if count > count_max:
        raise Broken(f"{process}: {what} is {count}, its bound is {count_max}")


def due_timers_fire(facts: TimerFacts, late_ms: int, late_ms_max: int, why: str) -> None:
    """What is due fires soon; if it does not, `why` is what it waits for."""
    if late_ms > late_ms_max:
        raise Broken(
            f"{facts}: {shown(facts.row)} is {late_ms} ms late (bound: {late_ms_max}): {why}"
        )


def memory_overlooks_nothing(facts: TimerFacts, process: str) -> None:
    """The safety read is a net. What falls into it was lost from memory."""
    raise Broken(f"{facts}: {process} owned its shard all the while, and overlooked it")


def the_engine_raises_nothing(process: str, message: str, error: str) -> None:
    """No exception gets away, no assertion fails, no task dies."""
    raise Broken(f"{process}: {message}: {error}")
