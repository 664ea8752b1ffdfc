"""One node that has its store to itself: it owns every shard, and asks nobody."""

import asyncio

from duetime.cluster.home import Home
from duetime.cluster.membership import Member
from duetime.errors import InvalidInput
from duetime.model import Lease
from duetime.shard import Shard

NOBODY_ELSE = "is the only one that takes shards: its timers would not fire"


class Alone:
    """Claims whatever shard is in use and not ours yet."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._claiming = asyncio.Lock()
        self._ends = False

    def unready(self) -> str | None:
        return "this node drains" if self._ends else None

    def give_way(self, undo: bool) -> None:
        if not undo:
            raise InvalidInput(NOBODY_ELSE, "node")

    async def join(self) -> None:
        pass

    async def begin(self) -> None:
        await self.complete()

    async def complete(self) -> None:
        home = self._home
        async with self._claiming:
            missing = [n for n in range(home.namespaces.num_shards_max()) if n not in home.shards]
            if missing and not self._ends:
                home.own(await self._claim(missing))

    def upkeep(self) -> None:
        home = self._home
        missing = len(home.shards) < home.namespaces.num_shards_max()
        if missing and not self._claiming.locked():
            home.attempt("claim", self.complete())

    async def reclaim(self, shards: list[Shard]) -> list[Lease | None]:
        return list(await self._claim([shard.number for shard in shards]))

    async def _claim(self, numbers: list[int]) -> list[Lease]:
        home = self._home
        return await home.store.claim(numbers, owner=home.me.owner, at=home.clock.now())

    def lost(self) -> None:
        pass

    def released(self, leases: list[Lease] | None) -> None:
        pass

    async def hand_over(self) -> None:
        pass

    async def drain(self) -> None:
        home = self._home
        self._ends = True
        home.handover.begin(list(home.shards.values()))
        await home.handover.over()

    async def leave(self) -> None:
        pass

    def members(self) -> list[Member]:
        home = self._home
        return [home.describe(draining=self._ends, skew_ms=None, moves=0)]

    def owner(self, shard: int) -> Member | None:
        return self._home.me if shard in self._home.shards else None

    async def refresh(self) -> None:
        pass
