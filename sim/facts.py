"""What the world knows about each timer: who asked for what, what stands, what was sent.

The truth about a key is the order in which changes took effect in the database. Requests
leave a token in the timer's metadata, so each row can be traced to the one that made it.
"""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from duetime.model import Finished, Timer
from duetime.writes import Attempt
from sim.store import Receipt

OpKind = Literal["create", "update", "cancel"]
OpResult = Literal["ok", "refused", "unknown"]
UNTIL_EVER = 1 << 62


class Policy(NamedTuple):
    """A retry policy in numbers, beside the text that the engine is given."""

    max_attempts: int | None
    duration_ms: int | None
    initial_ms: int
    multiplier: float
    interval_ms_max: int


class Meaning(NamedTuple):
    """What an answer means: completed, failed (may be retried), given up, rescheduled to."""

    what: Literal["completed", "failed", "given up", "rescheduled"]
    at: int = 0


@dataclass(slots=True)
class Op:
    """One request of one client."""

    number: int
    kind: OpKind
    key: tuple[str, str]
    process: str
    asked_us: int
    execute_at: int | None = None
    token: bytes | None = None
    result: OpResult | None = None
    error: str = ""
    ended_us: int | None = None
    landed_us: int | None = None

    @property
    def may_land(self) -> bool:
        return self.landed_us is None and self.result in (None, "unknown")

    def __str__(self) -> str:
        return f"{self.kind} #{self.number}"


@dataclass(slots=True)
class Sent:
    """One callback, as its receiver saw it."""

    process: str
    attempt: Attempt
    timer: Timer
    number: int
    us: int
    stale: bool  # Its node had lost the shard, and did not know.
    version: int  # Of the lease it was sent under.
    replied_us: int | None = None
    replied_wall: int = 0
    meaning: Meaning | None = None
    concluded: bool = False


@dataclass(slots=True)
class State:
    """What stood of a key from one change that took effect to the next.

    A reader may be shown it until whoever made the next change was told: `until`.
    """

    row: Timer | None
    finished: Finished | None
    since_us: int
    receipt: Receipt | None = None  # Of the change that ended it.
    ended_us: int = UNTIL_EVER

    def until_us(self) -> int:
        """When the last reader may have seen it; one that failed may be unaware for long."""
        if self.ended_us == UNTIL_EVER or self.receipt is None:
            return self.ended_us
        if self.receipt.told and self.receipt.told_us is not None:
            return self.receipt.told_us
        return UNTIL_EVER


@dataclass(slots=True)
class TimerFacts:
    """Everything about one key."""

    key: tuple[str, str]
    uuid: bytes
    shard: int
    row: Timer | None = None
    row_op: Op | None = None
    states: list[State] = field(default_factory=list)
    history: dict[int, Finished] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)
    begun_by: set[str] = field(default_factory=set)
    begun_us: dict[Attempt, int] = field(default_factory=dict)
    sent: list[Sent] = field(default_factory=list)
    canceled_us: list[int] = field(default_factory=list)

    def __str__(self) -> str:
        return "/".join(self.key)

    def stood(self, timer: Timer, begun_us: int, now_us: int) -> bool:
        """Whether it stood when its callback was begun, and its owner was not told since that
        something else stands."""
        return any(
            state.row is not None
            and same_schedule(state.row, timer)
            and begun_us <= state.ended_us
            and state.until_us() >= now_us
            for state in self.states
        )

    def answered(self, timer: Timer) -> Sent | None:
        """The attempt upon this very row that has been answered and not been recorded."""
        for sent in reversed(self.sent):
            if same_schedule(sent.timer, timer) and sent.meaning and not sent.concluded:
                return sent
        return None


def same_schedule(one: Timer, other: Timer) -> bool:
    """Whether both are the same timer waiting for the same attempt."""
    return (
        one.metadata == other.metadata
        and one.execute_at == other.execute_at
        and one.attempts == other.attempts
    )
