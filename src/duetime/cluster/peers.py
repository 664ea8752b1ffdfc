"""What nodes ask and tell each other, and the port through which they do."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from msgspec import Struct

from duetime.cluster.hints import Hint
from duetime.cluster.membership import Member
from duetime.errors import DuetimeError
from duetime.model import Reply, Timer
from duetime.requests import Changes
from duetime.store import Key

# What has an `ask` is done once by a node, however often that node is asked for it. What is
# asked `again` was asked of another node before, and no answer came: it may have been done.


class Put(Struct, frozen=True, tag="put"):
    """Store these. Answered by what went wrong, a dictionary by index."""

    timers: list[Timer]
    again: bool = False
    ask: str = ""


class Get(Struct, frozen=True, tag="get"):
    """Answered by a `View`."""

    key: Key


class Update(Struct, frozen=True, tag="update"):
    """Answered by a `View`."""

    key: Key
    changes: Changes
    reply: Reply
    again: bool = False
    ask: str = ""


class Cancel(Struct, frozen=True, tag="cancel"):
    """Answered by a `View`."""

    key: Key
    again: bool = False
    ask: str = ""


class Executing(Struct, frozen=True, tag="executing"):
    """Which timers of a namespace are executing. Answered by their uuids."""

    namespace: str


class ExecutingTimers(Struct, frozen=True, tag="executing_timers"):
    """The same. Answered by timers without payload, metadata and headers."""

    namespace: str


class Drain(Struct, frozen=True, tag="drain"):
    """Hand all shards over and take no more; or, to `undo` that, take part again."""

    undo: bool = False


OnKey = Get | Update | Cancel
Operation = Put | Get | Update | Cancel | Executing | ExecutingTimers | Drain


class PeerLost(DuetimeError):
    """The other node has not answered and will not. If `sent`, it may have done what was asked."""

    def __init__(self, name: str, reason: str, *, sent: bool) -> None:
        self.name = name
        self.sent = sent
        super().__init__(f"node {name!r}: {reason}")


class PeerFailed(DuetimeError):
    """The other node met an error that it did not foresee. Its log says which."""

    def __init__(self) -> None:
        super().__init__("another node failed at it; its log says how")


class Peers(Protocol):
    """The connection to the other nodes."""

    on_message: Callable[[Hint], None]
    """Who is given the hints that arrive."""
    on_call: Callable[[Operation], Awaitable[Any]]
    """Who does what others ask for: returns the answer, or raises `RequestError`."""

    def introduce(self, name: str, boot: str) -> None:
        """Who we are. Before `start`."""

    async def start(self) -> str:
        """Listen; the `host:port` where other nodes reach us. `CannotListen`."""

    async def call(self, member: Member, operation: Operation) -> Any:
        """Have it done there. Raises `PeerLost`, `PeerFailed`, `Unavailable` where too much
        waits for that node already, and whatever `RequestError` was raised there."""

    async def tell(self, member: Member, message: Hint) -> None:
        """Send a hint, if that can be done soon. Raises nothing."""

    async def close(self) -> None:
        """Listen no more; what was asked of us is answered, what we asked is lost. Closing
        twice is fine."""
