"""Finds the owner of a shard and has it do what is asked: this node, or another one.

A shard that changes hands has no owner for a moment. Whoever is asked then looks again and
waits, for as long as a planned handover takes; after that the caller is told to come again.

An operation whose answer was lost may have been done. It is asked once more, of whoever owns
the shard now. If that is the same node, it knows, and does not do it twice. Another one, which
has taken the shard over since, is asked `again` and goes by what it finds:

- *get* changes nothing;
- *put* is not done if the timer it made stands, or has ended: so what was canceled since does
  not come back, and what has fired does not fire again;
- *cancel* that finds the timer canceled has succeeded;
- *update* sets the same values once more.

Where what is found leaves open whether it was done (an update finds the timer finished: before
it, or after? a put finds another timer), the caller is told that the outcome is not known.
"""

import asyncio
import logging
from collections.abc import Collection, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, NamedTuple, Protocol

from msgspec.structs import replace

from duetime.cluster.membership import Member
from duetime.cluster.peers import (
    Drain,
    Executing,
    ExecutingTimers,
    Get,
    OnKey,
    Operation,
    PeerFailed,
    PeerLost,
    Peers,
    Put,
)
from duetime.errors import (
    DuetimeError,
    NodeNotFound,
    RequestError,
    ShardMoved,
    StoreError,
    Unavailable,
)
from duetime.model import Namespace, Timer, View
from duetime.operations import UNKNOWN, Operations
from duetime.shard import Shard

log = logging.getLogger(__name__)

SEARCH_S = 5.0
"""About as long as a planned handover may take."""
PAUSE_S_MIN = 0.02
PAUSE_S_MAX = 0.4
EXECUTING_S = 1.0
"""A node that is silent for longer costs a list what is executing there, and nothing else."""
PART_BYTES_MAX = 4 * 1024 * 1024
"""Of the timers that go to another node in one message, about."""
TIMER_BYTES = 1_024
"""What a timer may weigh beside its payload and metadata."""


class Neighbourhood(Protocol):
    """What the router needs of the node."""

    @property
    def me(self) -> Member: ...
    @property
    def peers(self) -> Peers | None: ...
    @property
    def shards(self) -> dict[int, Shard]: ...

    def owner(self, shard: int) -> Member | None:
        """Who owns it, as far as is known here."""

    def members(self) -> list[Member]:
        """All live nodes, this one included."""

    async def refresh_owners(self) -> None:
        """Read anew who owns what, unless that was done just now. `StoreError`."""


class Router:
    """What is asked of it is done here or elsewhere; the errors are those of the owner."""

    def __init__(self, node: Neighbourhood, operations: Operations) -> None:
        self._node = node
        self._shards = node.shards
        self._operations = operations
        self._asks = count(1)

    async def do(self, operation: OnKey, scope: Namespace) -> View:
        """Have it done by the owner of its key's shard."""
        try:
            return await self._operations.do(operation, scope)
        except ShardMoved:
            return await self._search(operation, scope)

    async def put(self, timers: Sequence[Timer]) -> dict[int, RequestError]:
        """Have these stored; what went wrong, by index. Of two with one key the later one wins."""
        shards = self._shards
        away = [index for index, timer in enumerate(timers) if timer.shard not in shards]
        if not away:
            failed = await self._operations.put_many(timers)
        else:
            elsewhere = set(away)
            here = [index for index in range(len(timers)) if index not in elsewhere]
            failed, failed_here = await asyncio.gather(
                self._put(timers, away),
                self._operations.put_many([timers[index] for index in here]),
            )
            for at, error in failed_here.items():
                failed[here[at]] = error
        moved = [index for index, error in failed.items() if isinstance(error, ShardMoved)]
        if moved:
            for index in moved:
                del failed[index]
            failed |= await self._put(timers, moved)
        return failed

    async def executing(self, namespace: str) -> set[bytes]:
        """The uuids of the timers that are executing anywhere."""
        found = {timer.uuid for timer in self._operations.executing(namespace)}
        for uuids in await self._ask_all(Executing(namespace)):
            found.update(uuids)
        return found

    async def executing_timers(self, namespace: str) -> tuple[list[Timer], list[Timer]]:
        """Those executing here, and those elsewhere, the latter without their payload,
        metadata and headers. What changes hands is in neither twice."""
        here = self._operations.executing(namespace)
        known = {timer.uuid for timer in here}
        elsewhere = []
        for timers in await self._ask_all(ExecutingTimers(namespace)):
            for timer in timers:
                if timer.uuid not in known:
                    known.add(timer.uuid)
                    elsewhere.append(timer)
        return here, elsewhere

    async def drain(self, name: str, *, undo: bool) -> None:
        """Have that other node hand over its shards. `NodeNotFound`, `Unavailable`."""
        member = next((other for other in self._others() if other.name == name), None)
        if member is None:
            raise NodeNotFound(name)
        assert self._node.peers is not None
        try:
            await self._node.peers.call(member, Drain(undo))
        except PeerLost as lost:
            raise Unavailable(str(lost)) from lost

    # -- one operation ------------------------------------------------------------------

    async def _search(self, operation: OnKey, scope: Namespace) -> View:
        search = _Search(self._node)
        number = operation.key.shard
        changes = not isinstance(operation, Get)
        unanswered: set[str] = set()
        if not isinstance(operation, Get):
            operation = replace(operation, ask=self._ask())
        while True:
            owner = self._elsewhere(number)
            if not isinstance(operation, Get):
                operation = replace(operation, again=_may_be_done(unanswered, owner))
            try:
                if owner is None:
                    return await self._operations.do(operation, scope)
                assert self._node.peers is not None
                view: View = await self._node.peers.call(owner, operation)
            except ShardMoved:
                pass
            except PeerLost as lost:
                assert owner is not None
                if lost.sent and changes:
                    unanswered.add(owner.owner)
            else:
                return view
            if not await search.goes_on():
                raise Unavailable(UNKNOWN) if unanswered else _no_owner(number)

    # -- many timers --------------------------------------------------------------------

    async def _put(self, timers: Sequence[Timer], left: list[int]) -> dict[int, RequestError]:
        """Of the timers those at these indexes, each part where it belongs."""
        search = _Search(self._node)
        failed: dict[int, RequestError] = {}
        unanswered: dict[int, set[str]] = {}
        ask = self._ask()
        while True:
            parts = self._parts(timers, left, unanswered)
            calls = [self._put_part(timers, part, ask) for part in parts]
            outcomes = await asyncio.gather(*calls)
            left = []
            for part, outcome in zip(parts, outcomes, strict=True):
                if isinstance(outcome, PeerLost):
                    left += part.indexes
                    if outcome.sent and part.owner is not None:
                        for index in part.indexes:
                            unanswered.setdefault(index, set()).add(part.owner.owner)
                elif isinstance(outcome, RequestError):
                    failed |= dict.fromkeys(part.indexes, outcome)
                else:
                    for at, error in outcome.items():
                        if isinstance(error, ShardMoved):
                            left.append(part.indexes[at])
                        else:
                            failed[part.indexes[at]] = error
            if not left:
                return failed
            left.sort()
            if not await search.goes_on():
                for index in left:
                    shard = timers[index].shard
                    failed[index] = (
                        Unavailable(UNKNOWN) if index in unanswered else _no_owner(shard)
                    )
                return failed

    def _parts(
        self, timers: Sequence[Timer], indexes: list[int], unanswered: dict[int, set[str]]
    ) -> list["_Part"]:
        """By where they belong; in their order, and none too large to travel."""
        open_parts: dict[tuple[str, bool], _Part] = {}
        parts: list[_Part] = []
        for index in indexes:
            timer = timers[index]
            owner = self._elsewhere(timer.shard)
            again = _may_be_done(unanswered.get(index, ()), owner)
            place = ("" if owner is None else owner.name, again)
            part = open_parts.get(place)
            if part is None or (owner is not None and part.bytes[0] > PART_BYTES_MAX):
                part = open_parts[place] = _Part(owner, again, [], [0])
                parts.append(part)
            part.indexes.append(index)
            part.bytes[0] += TIMER_BYTES + len(timer.payload or b"") + len(timer.metadata or b"")
        return parts

    async def _put_part(
        self, timers: Sequence[Timer], part: "_Part", ask: str
    ) -> dict[int, RequestError] | RequestError | PeerLost:
        mine = [timers[index] for index in part.indexes]
        try:
            if part.owner is None:
                return await self._operations.put_many(mine, again=part.again)
            assert self._node.peers is not None
            failed: dict[int, RequestError] = await self._node.peers.call(
                part.owner, Put(mine, part.again, ask)
            )
        except PeerFailed as error:
            return Unavailable(str(error))
        except (RequestError, PeerLost) as error:
            return error
        return failed

    # -- all nodes ----------------------------------------------------------------------

    async def _ask_all(self, operation: Operation) -> list[Any]:
        """The answers of all other nodes that give one soon."""
        peers = self._node.peers
        others = self._others()
        if peers is None or not others:
            return []
        calls = [asyncio.ensure_future(_answer(peers, member, operation)) for member in others]
        try:
            done, _ = await asyncio.wait(calls, timeout=EXECUTING_S)
        finally:
            for call in calls:
                call.cancel()
        answers = [
            answer for call in calls if call in done if (answer := call.result()) is not None
        ]
        if len(answers) < len(others):
            log.info("a list lacks what is executing elsewhere", extra={"nodes": len(others)})
        return answers

    def _ask(self) -> str:
        """What nobody else calls anything that is asked."""
        return f"{self._node.me.boot}.{next(self._asks)}"

    def _others(self) -> list[Member]:
        name = self._node.me.name
        return [member for member in self._node.members() if member.name != name]

    def _elsewhere(self, number: int) -> Member | None:
        """The other node that owns the shard; None if this one does, or nobody known."""
        if number in self._shards or self._node.peers is None:
            return None
        owner = self._node.owner(number)
        return None if owner is None or owner.name == self._node.me.name else owner


class _Part(NamedTuple):
    """Timers that go to one place together."""

    owner: Member | None
    again: bool
    indexes: list[int]
    bytes: list[int]


class _Search:
    """For how long, and how often, to look for an owner."""

    def __init__(self, node: Neighbourhood) -> None:
        self._node = node
        self._time = asyncio.get_running_loop().time
        self._until = self._time() + SEARCH_S
        self._pause_s = 0.0  # At first only our knowledge may be old.

    async def goes_on(self) -> bool:
        """Wait a little, and read who owns what. False if it has taken too long."""
        if self._time() >= self._until:
            return False
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(PAUSE_S_MAX, max(PAUSE_S_MIN, self._pause_s * 2))
        with suppress(StoreError):  # Then we go by what we know.
            await self._node.refresh_owners()
        return True


async def _answer(peers: Peers, member: Member, operation: Operation) -> Any:
    """None if there is none."""
    try:
        return await peers.call(member, operation)
    except DuetimeError as error:
        log.debug("no answer", extra={"node": member.name, "reason": str(error)})
        return None


def _may_be_done(unanswered: Collection[str], owner: Member | None) -> bool:
    """Whether another than this owner was asked before, and did not answer."""
    return any(owner is None or each != owner.owner for each in unanswered)


def _no_owner(shard: int) -> Unavailable:
    return Unavailable(f"shard {shard} has no owner at this moment")
