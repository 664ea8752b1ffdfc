"""What deciding who owns what asks of the node it decides for."""

from collections.abc import Coroutine
from typing import Any, Protocol

from duetime.clock import Clock
from duetime.cluster.membership import Member
from duetime.config import Config
from duetime.firing import Firing
from duetime.handover import Handover
from duetime.model import Lease
from duetime.namespaces import Namespaces
from duetime.shard import Shard
from duetime.store import Store


class Home(Protocol):
    """The node."""

    @property
    def me(self) -> Member: ...
    @property
    def config(self) -> Config: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def store(self) -> Store: ...
    @property
    def namespaces(self) -> Namespaces: ...
    @property
    def firing(self) -> Firing: ...
    @property
    def shards(self) -> dict[int, Shard]: ...
    @property
    def handover(self) -> Handover: ...

    def own(self, leases: list[Lease]) -> None:
        """These shards are ours now: begin to fire."""

    def describe(self, *, draining: bool, skew_ms: int | None, moves: int) -> Member:
        """`me`, with what it is doing at this moment."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run this until it ends, or the node does."""

    def attempt(self, what: str, work: Coroutine[Any, Any, None]) -> None:
        """Spawn it; when the store fails, say so and leave it at that."""
