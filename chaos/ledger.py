"""What was asked of each timer, what was answered, and what arrived: the facts to account for.

Each schedule that a client asks for has a revision, which travels in the payload: so every
callback says which schedule it belongs to, whatever the server believes.
"""

from typing import Literal

from msgspec import Struct

Kind = Literal["create", "update", "cancel"]
Outcome = Literal["done", "refused", "absent", "maybe"]
"""`done`: it was acknowledged, or seen to have taken effect. `refused`: the answer says no.
`absent`: it never reached the server, or was seen not to have taken effect. `maybe`: not known,
and nobody can tell any more."""


class Op(Struct, kw_only=True):
    """One operation on a timer. `ended` is when the client knew its outcome."""

    kind: Kind
    sent: int
    ended: int
    outcome: Outcome
    revision: int = 0
    due: int = 0
    script: str = ""
    """How the receiver answers this revision: see `chaos.receiver`."""
    again: bool = False
    """Its client has asked twice, because the first time no answer came."""


class Record(Struct):
    """All operations on one timer, one after the other, as its client saw them."""

    key: str
    namespace: str
    id: str = ""
    ops: list[Op] = []


class Firing(Struct, frozen=True):
    """One firing of one schedule: what must not arrive twice without a reason."""

    key: str
    revision: int
    attempt: int
    scheduled_at: int


class Arrival(Struct, frozen=True):
    """A callback as the receiver logged it, in real time."""

    at: int
    firing: Firing


class Kill(Struct, frozen=True):
    """A death, or another end of being heard, and what the database then did not know to be
    finished."""

    at: int
    unfinished: frozenset[Firing]
    until: int | None = None
    """Who is cut off and alive goes on firing until this, and nobody hears what came of it."""


class Found(Struct, frozen=True):
    """What the server says became of a timer in the end."""

    revision: int
    status: str
    last_error: str | None = None
