"""Who writes down everything that happens, and has the checkers look at it as it does.

Every event comes with the process that caused it. The first broken rule stops the world:
what happens after it is only its consequence.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from duetime.errors import RequestError, TimerExecuting, TimerFinished, TimerNotFound
from duetime.model import Finished, Lease, Namespace, RetryPolicy, Timer, View
from duetime.node import Node
from duetime.routing import shard_of, timer_uuid
from duetime.store import Batch
from duetime.writes import Attempt
from sim import checkers
from sim.checkers import Broken
from sim.clock import SimClock
from sim.facts import (
    UNTIL_EVER,
    Meaning,
    Op,
    OpKind,
    OpResult,
    Policy,
    Sent,
    State,
    TimerFacts,
    same_schedule,
)
from sim.loop import Schedule
from sim.store import Receipt

# How long a reader may be behind after a failed write, until its shard has started anew.
UNAWARE_US = 200_000_000
SETTLED_US = 90_000_000


class Violation(NamedTuple):
    """A broken rule."""

    checker: str
    message: str
    us: int


class Process(Protocol):
    """What the ledger may look at of a simulated node."""

    @property
    def clock(self) -> SimClock: ...
    @property
    def node(self) -> Node: ...
    @property
    def ended(self) -> bool: ...


class Ledger:
    """Facts by timer, and the trace."""

    def __init__(
        self, schedule: Schedule, *, calm: bool, strict_clocks: bool, unaware_us_max: int | None
    ) -> None:
        self.schedule = schedule
        self.processes: dict[str, Process] = {}
        self.namespaces: dict[str, Namespace] = {}
        self.policies: dict[RetryPolicy, Policy] = {}
        self.timers: dict[bytes, TimerFacts] = {}
        self.violation: Violation | None = None
        self.trace: list[tuple[Any, ...]] = []
        self.fired = 0
        self.stale = 0
        self.acknowledged = 0
        self.late_ms_max: int | None = None  # Once set: how late a callback may be.
        self.watch_from_us = UNTIL_EVER
        self.why: Callable[[TimerFacts], str] = str
        self._calm = calm
        self._strict_clocks = strict_clocks
        self._unaware_us_max = unaware_us_max
        self._ops: dict[bytes, Op] = {}
        self._op_count = 0
        self._versions: dict[int, int] = {}
        self._claims_us: dict[int, list[int]] = {}
        self._claimers: dict[int, list[str]] = {}

    # -- rules --------------------------------------------------------------------------

    def check(self, checker: Callable[..., None], *facts: Any) -> None:
        """Have a rule looked at. The first that is broken ends the world."""
        if self.violation is not None:
            return
        try:
            checker(*facts)
        except Broken as broken:
            self.violation = Violation(checker.__name__, str(broken), self.schedule.now_us)
            self.note("world", "BROKEN", checker.__name__, str(broken))
            self.schedule.stop()

    def note(self, process: str, *what: Any) -> None:
        """A line of the trace."""
        self.trace.append((self.schedule.now_us, process, *what))

    # -- requests -----------------------------------------------------------------------

    def facts(self, namespace: str, id: str) -> TimerFacts:
        uuid = timer_uuid(namespace, id)
        facts = self.timers.get(uuid)
        if facts is None:
            shard = shard_of(id, self.namespaces[namespace].num_shards)
            facts = self.timers[uuid] = TimerFacts((namespace, id), uuid, shard)
            facts.states.append(State(None, None, 0))
        return facts

    def asked(
        self, process: str, kind: OpKind, key: tuple[str, str], execute_at: int | None = None
    ) -> Op:
        """A request is on its way. Its token is to go into the timer's metadata."""
        self._op_count += 1
        op = Op(self._op_count, kind, key, process, self.schedule.now_us, execute_at)
        if kind != "cancel":
            op.token = b'"%d"' % op.number
            self._ops[op.token] = op
        self.facts(*key).ops.append(op)
        self.note(process, "asked", kind, *key, op.number, execute_at)
        return op

    def ended(self, op: Op, result: OpResult, answer: View | Exception | None) -> None:
        """The node has answered (whether or not the client still listens)."""
        op.result, op.ended_us = result, self.schedule.now_us
        facts = self.facts(*op.key)
        if result == "ok":
            self.acknowledged += 1
            if op.kind == "cancel":  # Which of several it was that landed, only the answer tells.
                landed = [us for us in facts.canceled_us if us >= op.asked_us]
                if landed:
                    op.landed_us = landed[0]
                    facts.canceled_us.remove(landed[0])
        else:
            op.error = type(answer).__name__
        self.note(op.process, "answered", op.kind, *op.key, op.number, result, op.error)
        clustered = self._unaware_us_max is not None
        self.check(checkers.an_acknowledged_request_is_stored, facts, op, clustered)
        if isinstance(answer, (TimerNotFound, TimerFinished, TimerExecuting)):
            self.read(facts, op.process, op.asked_us, answer)

    # -- the database ---------------------------------------------------------------------

    def claimed(self, owner: str, leases: list[Lease], receipt: Receipt) -> None:
        for lease in leases:
            self._versions[lease.shard] = lease.version
            self._claims_us.setdefault(lease.shard, []).append(self.schedule.now_us)
            self._claimers.setdefault(lease.shard, []).append(owner)
        self.note(owner, "claimed", *((lease.shard, lease.version) for lease in leases))

    def purged(self, owner: str, namespace: str, before: int) -> None:
        scope = self.namespaces[namespace]
        if self._strict_clocks:
            wall = self.processes[owner].clock.now()
            self.check(checkers.history_is_kept, scope, before, wall, owner)
        for facts in self.timers.values():
            if facts.key[0] == namespace and facts.history:
                for at in [at for at in facts.history if at <= before]:
                    del facts.history[at]
        self.note(owner, "purged", namespace, before)

    def landed(self, owner: str, batch: Batch, receipt: Receipt) -> None:
        newest = self._versions.get(batch.lease.shard, 0)
        self.check(checkers.writes_under_the_newest_lease, batch, newest, owner)
        changes: dict[bytes, list[Any]] = {}
        for put in batch.puts:
            changes.setdefault(put.uuid, [None, None, None])[0] = put
        for remove in batch.removes:
            changes.setdefault(remove.uuid, [None, None, None])[1] = remove
        for finished in batch.finished:
            changes.setdefault(finished.timer.uuid, [None, None, None])[2] = finished
        for uuid, (put, remove, finished) in changes.items():
            facts = self.timers[uuid]
            if put is not None:
                self._put(owner, facts, put, receipt)
            else:
                self._removed(owner, facts, remove, finished, receipt)

    def _put(self, owner: str, facts: TimerFacts, put: Timer, receipt: Receipt) -> None:
        row = facts.row
        self.note(owner, "stored", *facts.key, _token(put), put.execute_at, put.attempts)
        if row is not None and row == put:
            return  # An outcome, written once more after a failure that was none.
        op = self._ops.get(put.metadata or b"")
        if row is None or row.metadata != put.metadata:
            if op is not None and op.landed_us is not None:
                sent = self._answered(owner, facts, lambda timer: timer.metadata == put.metadata)
                if row is None:
                    self.check(checkers.what_has_ended_stays_so, facts, put)
                else:
                    self.check(checkers.keeps_a_newer_schedule, facts, put)
                if sent is not None:
                    self._concluded(facts, sent, put)
            else:
                self.check(checkers.a_put_was_asked_for, facts, op, put)
                if op is not None:
                    op.landed_us = self.schedule.now_us
        else:
            sent = self._answered(owner, facts, lambda timer: same_schedule(timer, row))
            if sent is not None:
                self._concluded(facts, sent, put)
            else:
                wall = self.processes[owner].clock.now() if self._strict_clocks else None
                under_way = self._under_way(owner, facts, row)
                self.check(checkers.a_move_is_a_deferral, facts, row, put, wall, under_way)
        facts.row_op = op
        self._state(facts, put, None, receipt)

    def _removed(
        self,
        owner: str,
        facts: TimerFacts,
        remove: Timer | None,
        finished: Finished | None,
        receipt: Receipt,
    ) -> None:
        status = finished.status if finished else "gone"
        self.note(owner, "removed", *facts.key, _token(remove), status)
        row = facts.row
        if finished is not None and facts.history.get(finished.at) == finished:
            return  # Written once more after a failure that was none.
        gone = remove or (finished.timer if finished else None)
        assert gone is not None
        sent = self._answered(owner, facts, lambda timer: same_schedule(timer, gone))
        op = None
        if sent is None:
            op = next((op for op in facts.ops if op.kind == "cancel" and op.may_land), None)
        removes_row = row is not None and remove is not None and row.cursor == remove.cursor
        if removes_row:
            assert row is not None
            if row.metadata != gone.metadata:
                self.check(checkers.keeps_a_newer_schedule, facts, gone)
            self.check(checkers.a_removal_is_explained, facts, row, sent, op)
        elif row is not None and sent is not None and finished is not None:
            self.check(checkers.keeps_a_newer_schedule, facts, gone)
        elif finished is None:
            return  # Removing what is gone is no error, and changes nothing.
        kept = self.namespaces[facts.key[0]].history_retention_s > 0
        self.check(checkers.history_agrees, facts, finished, sent, op, kept)
        if finished is not None:
            facts.history[finished.at] = finished
        if sent is not None:
            self._concluded(facts, sent, None)
        elif op is not None:
            facts.canceled_us.append(self.schedule.now_us)
        if removes_row:
            self._state(facts, None, finished, receipt)

    def _concluded(self, facts: TimerFacts, sent: Sent, put: Timer | None) -> None:
        sent.concluded = True
        between = self._claimers[facts.shard][sent.version :]
        self.check(checkers.outcomes_end_with_their_owner, facts, sent, between)
        min_delay_ms = self.namespaces[facts.key[0]].min_delay_s * 1000
        policy = self._policy(sent.timer)
        self.check(checkers.an_answer_has_its_effect, facts, sent, put, policy, min_delay_ms)

    def _answered(
        self, owner: str, facts: TimerFacts, matches: Callable[[Timer], bool]
    ) -> Sent | None:
        """The attempt by this owner that has been answered and was not recorded yet."""
        shard = self.processes[owner].node.shards.get(facts.shard)
        for sent in reversed(facts.sent):
            if sent.meaning is None or sent.concluded or sent.process != owner:
                continue
            if sent.attempt.shard is shard and matches(sent.timer):
                return sent
        return None

    def _under_way(self, owner: str, facts: TimerFacts, row: Timer) -> Sent | None:
        shard = self.processes[owner].node.shards.get(facts.shard)
        for sent in facts.sent:
            if sent.attempt.shard is shard and same_schedule(sent.timer, row):
                return sent
        return None

    def _state(
        self, facts: TimerFacts, row: Timer | None, finished: Finished | None, receipt: Receipt
    ) -> None:
        now = self.schedule.now_us
        facts.states[-1].ended_us = now
        facts.states[-1].receipt = receipt
        facts.row = row
        facts.states.append(State(row, finished, now))

    def _policy(self, timer: Timer) -> Policy | None:
        policy = timer.retry or self.namespaces[timer.namespace].retry_policy
        return None if policy is None else self.policies[policy]

    def owns(self, lease: Lease) -> bool:
        """Whether this is the newest claim of its shard."""
        return self._versions.get(lease.shard) == lease.version

    def _superseded_us(self, lease: Lease) -> int:
        """When the claim after this one took effect. Versions count from 1."""
        return self._claims_us[lease.shard][lease.version]

    # -- receivers --------------------------------------------------------------------------

    def begun(self, process: str, attempt: Attempt) -> None:
        """The carrier was given a callback; it may still have to connect."""
        facts = self.timers[attempt.timer.uuid]
        facts.begun_by.add(process)
        facts.begun_us[attempt] = self.schedule.now_us

    def not_sent(self, attempt: Attempt) -> None:
        """It stood no more when it had a connection."""
        del self.timers[attempt.timer.uuid].begun_us[attempt]

    def sent(self, process: str, attempt: Attempt) -> Sent:
        """The first byte of a callback leaves."""
        timer = attempt.timer
        facts = self.timers[timer.uuid]
        self.fired += 1
        host = self.processes[process]
        wall = host.clock.now()
        stale = not self.owns(attempt.shard.lease)
        begun_us = facts.begun_us.pop(attempt)
        self.note(
            process, "fired", *facts.key, _token(timer), attempt.number, "stale" if stale else ""
        )
        self.check(checkers.fires_not_early, facts, timer, wall, host.clock.lead_ms())
        self.check(checkers.attempts_stay_within_policy, facts, attempt, self._policy(timer))
        self.check(checkers.fires_once_for_each_owner, facts, attempt, process)
        if self._calm:
            self.check(checkers.fires_once_in_calm, facts, attempt, process)
        if self._unaware_us_max is not None:
            wrong_us = self.schedule.now_us - host.clock.set_at_us
            lead_ms, lead_ms_max = host.clock.lead_ms(), host.node.config.clock_skew_s_max * 1000
            self.check(
                checkers.a_wrong_clock_fires_nothing, facts, process, lead_ms, lead_ms_max, wrong_us
            )
        if stale:
            # Until it is told that it was superseded, it cannot know.
            self.stale += 1
            if self._unaware_us_max is not None:
                since_us = self._superseded_us(attempt.shard.lease)
                unaware_us = self.schedule.now_us - since_us
                self.check(
                    checkers.stops_when_superseded, facts, process, unaware_us, self._unaware_us_max
                )
        elif not facts.stood(timer, begun_us, self.schedule.now_us):
            self.check(checkers.fires_only_what_stands, facts, attempt)
        firing, config = host.node.firing, host.node.config
        self.check(
            checkers.memory_stays_bounded,
            process,
            "callbacks in flight",
            firing.in_flight,
            config.in_flight_max + 2 * len(firing._destinations),
        )
        if self.late_ms_max is not None and self.schedule.now_us >= self.watch_from_us:
            late_ms = wall - timer.execute_at
            self.check(checkers.due_timers_fire, facts, late_ms, self.late_ms_max, "it has fired")
        version = attempt.shard.lease.version
        sent = Sent(process, attempt, timer, attempt.number, self.schedule.now_us, stale, version)
        facts.sent.append(sent)
        return sent

    def replied(self, sent: Sent, meaning: Meaning, wall: int) -> None:
        """Its receiver's answer has reached the node."""
        sent.replied_us, sent.replied_wall, sent.meaning = self.schedule.now_us, wall, meaning
        key = self.timers[sent.timer.uuid].key
        self.note(sent.process, "replied", *key, _token(sent.timer), meaning.what, meaning.at)

    # -- readers ----------------------------------------------------------------------------

    def read(
        self, facts: TimerFacts, process: str, asked_us: int, answer: View | RequestError
    ) -> None:
        """A client was told this about a timer."""
        if not self._was_asked_of_the_owner(facts, process, asked_us):
            return
        states = [state for state in facts.states if self._seen_since(facts, state) >= asked_us]
        if isinstance(answer, View):
            what = f"{answer.status} {checkers.shown(answer.timer)}"
            matches = [self._matches(state, answer) for state in states]
        else:
            what = type(answer).__name__
            matches = [self._explains(facts, state, answer, process) for state in states]
        self.check(checkers.an_answer_was_true, facts, what, states, matches)

    def _was_asked_of_the_owner(self, facts: TimerFacts, process: str, asked_us: int) -> bool:
        """Whether the one owner there was all the while has answered, itself or by another."""
        claimed_us = self._claims_us.get(facts.shard, [0])[-1]
        if claimed_us >= asked_us:
            return False
        shard = self.processes[process].node.shards.get(facts.shard)
        if shard is not None:
            return self.owns(shard.lease)
        holders = [
            shard.lease
            for other in self.processes.values()
            if not other.ended and (shard := other.node.shards.get(facts.shard)) is not None
        ]
        # Who was the owner before may have answered, for as long as it did not know.
        settled = claimed_us < asked_us - SETTLED_US
        return settled and len(holders) == 1 and self.owns(holders[0])

    def _seen_since(self, facts: TimerFacts, state: State) -> int:
        until = state.until_us()
        if until == UNTIL_EVER and state.ended_us != UNTIL_EVER:
            claims = self._claims_us.get(facts.shard, [])
            anew = next((us for us in claims if us >= state.ended_us), None)
            if anew is not None:
                return anew + UNAWARE_US
        return until

    def _matches(self, state: State, view: View) -> bool:
        if view.status in ("pending", "executing"):
            return state.row is not None and same_schedule(state.row, view.timer)
        if state.row is not None or state.finished is None:
            return False
        if self._strict_clocks:
            return (state.finished.status, state.finished.at) == (view.status, view.updated_at)
        return True

    def _explains(self, facts: TimerFacts, state: State, error: RequestError, process: str) -> bool:
        if isinstance(error, TimerExecuting):
            clustered = self._unaware_us_max is not None  # Then another node may have said so.
            return bool(facts.begun_by) if clustered else process in facts.begun_by
        if state.row is not None:
            return False
        if isinstance(error, TimerFinished):
            return state.finished is not None
        if state.finished is None or not self._strict_clocks:
            return True
        retention_ms = self.namespaces[facts.key[0]].history_retention_s * 1000
        wall = self.processes[process].clock.now()
        return state.finished.at <= wall - retention_ms + 1


def _token(timer: Timer | None) -> str:
    return (timer.metadata or b"?").decode() if timer is not None else "-"
