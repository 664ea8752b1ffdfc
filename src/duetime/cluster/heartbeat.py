"""Membership by heartbeat documents in the store: nothing else to run, the default.

Each node writes its own document every second and reads all of them. Whose document has not
changed for as long as `MEMBER_TIMEOUT`, by the observer's monotonic clock, is dead: nobody's
wall clock is compared with anybody's. Whoever sees that first deletes the document, so that all
others see it as well; if its node is alive after all, it writes another one.
"""

import asyncio
from collections.abc import Sequence
from math import inf
from typing import NamedTuple

import msgspec

from duetime.clock import Clock
from duetime.cluster.membership import Member
from duetime.cluster.trust import TRUSTED_SHARE
from duetime.errors import NodeNameTaken, StoreUnavailable
from duetime.store import Document, Store

KIND = "node"

_decode = msgspec.json.Decoder(Member).decode
_encode = msgspec.json.Encoder().encode


class Seen(NamedTuple):
    """A document, and since when it has not changed."""

    member: Member
    version: int
    since: float


class Sightings:
    """Whose document changed when, as one observer saw it. Pure: time is an argument."""

    def __init__(self, *, timeout_s: float, deaf_s: float) -> None:
        self._timeout_s = timeout_s
        self._deaf_s = deaf_s
        self._seen: dict[str, Seen] = {}
        self._looked_at = -inf

    def saw(self, documents: Sequence[Document], at: float) -> None:
        """These are all of them, read by `at`."""
        # Whoever did not listen for so long cannot say that others were silent meanwhile.
        was_deaf = at - self._looked_at > self._deaf_s
        self._looked_at = at
        before, self._seen = self._seen, {}
        for document in documents:
            known = before.get(document.name)
            if known is None or known.version != document.version:
                known = Seen(_decode(document.body), document.version, at)
            elif was_deaf:
                known = known._replace(since=at)
            self._seen[document.name] = known

    def get(self, name: str) -> Seen | None:
        return self._seen.get(name)

    def is_live(self, seen: Seen) -> bool:
        return self._looked_at - seen.since < self._timeout_s

    def live(self) -> list[Member]:
        """By name."""
        return [seen.member for seen in self._seen.values() if self.is_live(seen)]

    def dead(self) -> list[Seen]:
        """Those whose documents are of no use any more."""
        return [seen for seen in self._seen.values() if not self.is_live(seen)]


class Heartbeats:
    """Membership over a store that several processes share."""

    def __init__(self, store: Store, *, interval_s: float, timeout_s: float, clock: Clock) -> None:
        self.interval_s = interval_s
        self.trust_s = timeout_s * TRUSTED_SHARE
        self._store = store
        self._clock = clock
        self._timeout_s = timeout_s
        self._sightings = Sightings(timeout_s=timeout_s, deaf_s=self.trust_s)
        self._version = 0  # Of our own document, as far as we know.

    async def join(self, me: Member) -> None:
        while True:
            await self._look()
            other = self._sightings.get(me.name)
            # A name that is found is somebody's until it was silent before our eyes.
            if other is None or not self._sightings.is_live(other):
                self._version = 0 if other is None else other.version
                if await self._write(me):
                    return
            elif other.version != self._version and self._version:
                raise NodeNameTaken(me.name, other.member.address)
            else:
                self._version = other.version
            await asyncio.sleep(self.interval_s / 2)

    async def beat(self, me: Member) -> list[Member]:
        written, _ = await asyncio.gather(self._write(me), self._look())
        if not written:
            # Of an earlier write we were told that it failed; or we were away for so long that
            # the document was deleted; or the name is another's now.
            mine = self._sightings.get(me.name)
            if mine is not None and mine.member.boot != me.boot and self._sightings.is_live(mine):
                raise NodeNameTaken(me.name, mine.member.address)
            self._version = 0 if mine is None else mine.version
            if not await self._write(me):
                raise StoreUnavailable("another write of this node's heartbeat came in between")
        await self._delete_dead(me)
        others = [member for member in self._sightings.live() if member.name != me.name]
        return sorted([me, *others], key=_name)

    async def changed(self) -> None:
        await asyncio.get_running_loop().create_future()  # Nothing is heard between beats.

    async def leave(self, me: Member) -> None:
        await self._store.delete_document(KIND, me.name, expected_version=self._version)

    async def close(self) -> None:
        pass

    async def _look(self) -> None:
        documents = await self._store.documents(KIND)
        self._sightings.saw(documents, self._clock.monotonic())

    async def _write(self, me: Member) -> bool:
        version = self._version
        written = await self._store.write_document(
            KIND, me.name, _encode(me), expected_version=version
        )
        if written:
            self._version = version + 1
        return written

    async def _delete_dead(self, me: Member) -> None:
        # At once: who joins takes each document that it finds for a live node's until that was
        # silent before its eyes, and would leave to the dead what all others leave to it.
        for seen in self._sightings.dead():
            if seen.member.name != me.name:
                await self._store.delete_document(
                    KIND, seen.member.name, expected_version=seen.version
                )


def _name(member: Member) -> str:
    return member.name
