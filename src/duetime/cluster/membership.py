"""Who is there: the port through which nodes know of each other."""

from typing import Protocol

from msgspec import Struct


class Member(Struct, frozen=True, kw_only=True):
    """One node, as it last described itself."""

    name: str
    boot: str
    """Random for each start of a process: tells two lives of one name apart."""
    address: str
    """`host:port` of the connection for other nodes; empty while it has none."""
    started_at: int
    version: str
    """Duetime's."""
    founder: str = ""
    """Who has made the database its cluster's: tells apart clusters that are named alike."""
    draining: bool = False
    """It wants no shards: it stops, or its clock is wrong."""
    shards: int = 0
    in_flight: int = 0
    backlog: int = 0
    """Due timers that wait for room."""
    skew_ms: int | None = None
    """How far its clock is ahead of the database's."""
    moves: int = 0
    """Goes up whenever it claims or releases shards: others then read anew who owns what."""
    namespaces: int = 0
    """Goes up with each change of a namespace that it knows of: others then read them anew."""

    @property
    def owner(self) -> str:
        """What it claims shards as. Not the name alone: what an earlier life held is free."""
        return f"{self.name}/{self.boot}"


class Membership(Protocol):
    """Two implementations: heartbeats in the store, and etcd."""

    @property
    def interval_s(self) -> float:
        """How often to `beat`."""

    @property
    def trust_s(self) -> float:
        """How long, from before a `beat` was asked for, the others will at least wait before
        they take its node for dead."""

    async def join(self, me: Member) -> None:
        """Become known. `NodeNameTaken` if another live node has the name; may take as long as
        it takes to find that one dead. `StoreError`."""

    async def beat(self, me: Member) -> list[Member]:
        """Publish `me`; all live members, me included.

        `StoreError` if it cannot be confirmed, `NodeNameTaken` if somebody else has taken the
        name since. Nobody is missing for having been silent while we did not listen.
        """

    async def changed(self) -> None:
        """Wait until somebody came, went, or wants shards no more or again, as far as that is
        heard of between beats; may wait for ever. Raises nothing."""

    async def leave(self, me: Member) -> None:
        """Be no longer known, so that nobody waits for us to be dead. `StoreError`."""

    async def close(self) -> None:
        """Let go of connections. Closing twice is fine."""
