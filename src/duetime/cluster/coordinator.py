"""One node among several: it makes itself known, and takes, keeps and hands over shards.

Two loops. One beats: it publishes this node, learns who is alive, compares the clocks. The
other tends the shards: whenever somebody came, went or moved something, it reads who owns
what and does what `plan` says. While nothing happens, nothing but heartbeats is asked of the
store. Hints from other nodes only make either of them look sooner.
"""

import asyncio
import logging
from math import inf

from msgspec.structs import replace

from duetime.cluster.alone import NOBODY_ELSE
from duetime.cluster.heartbeat import Heartbeats
from duetime.cluster.hints import Hint, NamespacesChanged, ShardsReleased
from duetime.cluster.home import Home
from duetime.cluster.identity import check_cluster, check_num_shards
from duetime.cluster.membership import Member, Membership
from duetime.cluster.ownership import Plan, Rendezvous, plan
from duetime.cluster.peers import Peers
from duetime.cluster.skew import Skew
from duetime.cluster.trust import Trust
from duetime.errors import InvalidInput, NodeNameTaken, StoreError, StoreUnavailable
from duetime.model import Lease
from duetime.shard import Shard
from duetime.store import ShardRow

log = logging.getLogger(__name__)

POLL_S_MIN = 0.2  # While shards that should be ours are still another's.
POLL_S_MAX = 1.0
REFRESH_S_MIN = 0.1
COMPLETE_S_MAX = 5.0
RECHECK_S = 60.0  # Even if nobody says that anything has changed.
UNSURE_S = 10.0  # A claim that failed may take effect for this long, and nobody would notice.


class Coordinator:
    """Decides for one node which shards it owns."""

    def __init__(self, home: Home, membership: Membership | None, peers: Peers | None) -> None:
        config = home.config
        self._home = home
        self._peers = peers
        self._membership: Membership = membership or Heartbeats(
            home.store,
            interval_s=config.heartbeat_interval_s,
            timeout_s=config.member_timeout_s,
            clock=home.clock,
        )
        self._trust = Trust(span_s=self._membership.trust_s)
        self._skew = Skew(ms_max=config.clock_skew_s_max * 1000)
        self._rendezvous = Rendezvous()
        self._members: list[Member] = []
        self._by_owner: dict[str, Member] = {}
        self._rows: dict[int, ShardRow] = {}
        self._wanted: list[str | None] = []
        self._founder = ""
        self._moves = 0
        self._draining = self._joined = False
        self._gives_way = False  # Asked for by people, who can undo it.
        self._read_at = -inf
        self._awaited = False
        self._unsure_until = -inf
        self._poll_s = POLL_S_MIN
        self._beat_now, self._tend_now = asyncio.Event(), asyncio.Event()
        self._beating, self._tending = asyncio.Lock(), asyncio.Lock()
        self._refreshing: asyncio.Task[None] | None = None
        home.namespaces.on_change = self._namespaces_changed

    # -- life -------------------------------------------------------------------------

    async def join(self) -> None:
        """Become known to the others. `RefusedStart` if this is not the place to."""
        home = self._home
        name = home.config.cluster_name
        self._founder = await check_cluster(home.store, name, owner=home.me.owner)
        if self._peers is not None:
            self._peers.on_message = self._heard
        await self._membership.join(self._describe())
        self._joined = True

    async def begin(self) -> None:
        """Take what is free, and from now on what will be."""
        home = self._home
        check_num_shards(home.namespaces, home.config.default_num_shards)
        await self._beat()
        await self._tend()
        for loop in (self._beats(), self._tends(), self._listens()):
            home.spawn(loop)

    async def hand_over(self) -> None:
        """Hand all shards over if others are there to take them."""
        if not self.ready:
            return
        await self._announce_drain()
        if self._others_take_shards():
            await self.drain()
        else:  # All stop together: until then our timers are ours, and so are theirs.
            self._draining = False

    async def drain(self) -> None:
        """Hand all shards over."""
        if not self._draining:
            await self._announce_drain()
        async with self._tending:  # What is being claimed now goes as well.
            self._assign()  # Anew, without us: each heir is told when its shards are free.
            self._home.handover.begin(list(self._home.shards.values()))
        await self._home.handover.over()

    async def _announce_drain(self) -> None:
        self._draining = True
        try:
            await self._beat()  # The others get ready meanwhile.
        except StoreError as error:
            log.warning("draining unannounced", extra={"reason": str(error)})

    async def leave(self) -> None:
        """Be gone. The loops have ended by now."""
        if self._refreshing is not None:
            self._refreshing.cancel()
        if self._joined:
            self._joined = False
            try:
                await self._membership.leave(self._describe())
            except StoreError as error:
                log.warning("left unannounced", extra={"reason": str(error)})
        await self._membership.close()

    # -- what others ask --------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether this node can be relied on to own shards."""
        return self.unready() is None

    def unready(self) -> str | None:
        """Why this node cannot be relied on to own shards; None when it can."""
        if self._draining or self._gives_way:
            return "this node drains"
        if not self._skew.is_fine:
            return "this node's clock differs from the database's"
        return None if self._is_trusted else "this node's heartbeat is not confirmed"

    def give_way(self, undo: bool) -> None:
        """Own no shards until that is undone: others take them. `InvalidInput`."""
        if not undo and not self._others_take_shards():
            raise InvalidInput(NOBODY_ELSE, "node")
        self._gives_way = not undo
        self._beat_now.set()
        self._look_again()

    def _others_take_shards(self) -> bool:
        me = self._home.me.owner
        return any(not member.draining and member.owner != me for member in self._members)

    @property
    def _is_trusted(self) -> bool:
        return self._home.clock.monotonic() < self._trust.until

    def members(self) -> list[Member]:
        """Those who are alive, as of the last heartbeat, us included."""
        me = self._describe()
        return [me if member.owner == me.owner else member for member in self._members] or [me]

    def owner(self, shard: int) -> Member | None:
        """Who has it, as far as is known; else who is about to take it."""
        home = self._home
        if shard in home.shards:
            return home.me
        row = self._rows.get(shard)
        owner = None if row is None or row.owner is None else self._by_owner.get(row.owner)
        if owner is None and shard < len(self._wanted):
            name = self._wanted[shard]
            owner = next((member for member in self._members if member.name == name), None)
        return owner

    async def refresh(self) -> None:
        """Read again who owns what. Many who ask at once share one read, and the next waits
        a moment."""
        if self._refreshing is None:
            self._refreshing = asyncio.create_task(self._refresh())
            self._refreshing.add_done_callback(self._refreshed)
        await asyncio.shield(self._refreshing)

    async def complete(self) -> None:
        """Shards have come into use: wait until each is somebody's, but not for ever."""
        home = self._home
        give_up_at = home.clock.monotonic() + COMPLETE_S_MAX
        while True:
            await self.refresh()
            in_use = range(home.namespaces.num_shards_max())
            if all(self._is_owned(shard) for shard in in_use):
                return
            if home.clock.monotonic() >= give_up_at:
                log.warning("shards are nobody's yet")
                return

    def upkeep(self) -> None:
        """Once a second. The loops see to everything."""

    # -- what the node tells ------------------------------------------------------------

    async def reclaim(self, shards: list[Shard]) -> list[Lease | None]:
        """A write to these failed: the new lease of each, or None if it is another's now."""
        async with self._tending:
            rows = {row.shard: row for row in await self._home.store.shards()}
            if not self._is_trusted:
                raise StoreUnavailable("who owns what is not known at this moment")
            me = self._home.me.owner
            ours = [
                shard
                for shard in shards
                if not shard.closed
                and (row := rows.get(shard.number)) is not None
                and (row.version == shard.lease.version or row.owner == me)
            ]
            leases = await self._claim([shard.number for shard in ours])
            given = dict(zip(ours, leases, strict=True))
            return [given.get(shard) for shard in shards]

    def lost(self) -> None:
        """A write found that a shard is another's."""
        self._look_again()

    def released(self, leases: list[Lease] | None) -> None:
        """These were given back; or some could not be."""
        self._look_again()
        if leases is None:
            return
        self._moves += 1
        self._beat_now.set()
        heirs: dict[str, list[int]] = {}
        for lease in leases:
            row = self._rows.get(lease.shard)
            if row is not None and row.version <= lease.version:
                self._rows[lease.shard] = ShardRow(lease.shard, lease.version, None, row.claimed_at)
            heir = self.owner(lease.shard)
            if heir is not None:
                heirs.setdefault(heir.owner, []).append(lease.shard)
        for owner, shards in heirs.items():
            self._tell(self._by_owner[owner], ShardsReleased(shards))

    # -- beating ----------------------------------------------------------------------

    async def _beats(self) -> None:
        while True:
            began = self._home.clock.monotonic()
            try:
                await self._beat()
            except StoreError as error:
                log.warning("heartbeat failed", extra={"reason": str(error)})
            took_s = self._home.clock.monotonic() - began
            await _rest(self._beat_now, max(0.0, self._membership.interval_s - took_s))

    async def _beat(self) -> None:
        home, clock = self._home, self._home.clock
        async with self._beating:
            self._beat_now.clear()
            asked_at = clock.monotonic()
            try:
                async with asyncio.timeout(home.config.member_timeout_s):
                    self._judge(await self._skew.measure(home.store, clock))
                    members = await self._membership.beat(self._describe())
            except TimeoutError as error:
                raise StoreUnavailable("no answer to a heartbeat") from error
            except NodeNameTaken as error:
                raise StoreUnavailable(str(error)) from error
            self._trust.confirmed(asked_at, clock.monotonic())
            home.firing.trust(self._trust.until)
            if self._trust.lapsed:
                self._look_again()
            self._meet(members)

    def _judge(self, verdict: bool | None) -> None:
        """Say so when the clock went wrong, or is right again."""
        if verdict is None:
            return
        facts = {"skew_ms": self._skew.ms, "skew_ms_max": self._skew.ms_max}
        if verdict:
            log.warning("clock agrees with the database's again", extra=facts)
        else:
            log.error("clock differs from the database's: giving up all shards", extra=facts)
        self._look_again()

    def _meet(self, members: list[Member]) -> None:
        me = self._home.me.owner

        def what_matters(members: list[Member]) -> list[tuple[str, bool, int]]:
            return [(m.owner, m.draining, m.moves) for m in members if m.owner != me]

        if what_matters(members) != what_matters(self._members):
            self._look_again()
        before, self._members = self._by_owner, members
        self._by_owner = {member.owner: member for member in members}
        if before:
            for member in members:
                if member.owner not in before:
                    log.info("node joined", extra={"node": member.name, "address": member.address})
            for owner, member in before.items():
                if owner not in self._by_owner:
                    log.info("node left", extra={"node": member.name})
        known = self._home.namespaces.revision
        if any(member.namespaces > known for member in members):
            self._home.attempt("namespaces", self._read_namespaces())

    async def _read_namespaces(self) -> None:
        await self._home.namespaces.load()
        self._look_again()

    def _describe(self) -> Member:
        me = self._home.describe(draining=self._unfit, skew_ms=self._skew.ms, moves=self._moves)
        return replace(me, founder=self._founder)

    @property
    def _unfit(self) -> bool:
        return self._draining or self._gives_way or not self._skew.is_fine

    # -- tending the shards -------------------------------------------------------------

    async def _tends(self) -> None:
        while True:
            await _rest(self._tend_now, self._poll_s if self._awaited else RECHECK_S)
            self._poll_s = min(self._poll_s * 2, POLL_S_MAX)
            try:
                await self._tend()
            except StoreError as error:
                self._awaited = True
                log.warning("owners not read", extra={"reason": str(error)})

    async def _tend(self) -> None:
        """Read who owns what and act upon it."""
        home, clock = self._home, self._home.clock
        async with self._tending:
            self._tend_now.clear()
            self._awaited = False
            if not self._trust.is_heard(clock.monotonic()):
                return  # The next heartbeat that is confirmed comes back here.
            asked_at = self._read_at = clock.monotonic()
            self._rows = {row.shard: row for row in await home.store.shards()}
            todo = self._plan()
            if any((row := self._rows.get(shard)) and row.owner for shard in todo.claim):
                # Who claimed a shard a moment ago may have joined since our last heartbeat,
                # and who was dead may be back.
                await self._beat()
                todo = self._plan()
            for shard in todo.lost:
                shard.superseded([])
            self._trust.owners_read(asked_at, clock.monotonic())
            home.firing.trust(self._trust.until)
            home.handover.begin(todo.leave)
            if todo.release:
                await home.store.release(todo.release)
                self.released(todo.release)
            if todo.claim and not self._unfit and self._is_trusted:
                home.own(await self._claim(todo.claim))
            unsure = clock.monotonic() < self._unsure_until
            self._awaited = todo.awaited or unsure or self._trust.lapsed

    def _assign(self) -> None:
        home = self._home
        fit = {member.name for member in self._members if not member.draining}
        if self._unfit:
            fit.discard(home.me.name)
        self._wanted = self._rendezvous.assign(fit, home.namespaces.num_shards_max())

    def _plan(self) -> Plan:
        home = self._home
        self._assign()
        return plan(home.me, self._members, wanted=self._wanted, held=home.shards, rows=self._rows)

    async def _claim(self, numbers: list[int]) -> list[Lease]:
        home = self._home
        if not numbers:
            return []
        try:
            leases = await home.store.claim(numbers, owner=home.me.owner, at=home.clock.now())
        except StoreError:
            self._unsure_until = home.clock.monotonic() + UNSURE_S
            self._look_again()
            raise
        self._moves += 1
        self._beat_now.set()
        for lease in leases:
            self._rows[lease.shard] = ShardRow(lease.shard, lease.version, lease.owner, 0)
        log.info("shards claimed", extra={"shards": len(leases)})
        return leases

    def _look_again(self) -> None:
        self._poll_s = POLL_S_MIN
        self._tend_now.set()

    def _is_owned(self, shard: int) -> bool:
        row = self._rows.get(shard)
        return row is not None and row.owner in self._by_owner

    async def _refresh(self) -> None:
        wait_s = self._read_at + REFRESH_S_MIN - self._home.clock.monotonic()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        await self._tend()

    def _refreshed(self, task: asyncio.Task[None]) -> None:
        self._refreshing = None
        if not task.cancelled():
            task.exception()  # Whoever still waits has it; nobody need.

    # -- hints ------------------------------------------------------------------------

    async def _listens(self) -> None:
        while True:
            await self._membership.changed()
            self._beat_now.set()

    def _heard(self, message: object) -> None:
        if isinstance(message, ShardsReleased):
            self._look_again()
        elif isinstance(message, NamespacesChanged):
            self._home.attempt("namespaces", self._read_namespaces())

    def _namespaces_changed(self) -> None:
        self._beat_now.set()
        for member in self._members:
            self._tell(member, NamespacesChanged())

    def _tell(self, member: Member, hint: Hint) -> None:
        if self._peers is not None and member.owner != self._home.me.owner:
            self._home.spawn(self._peers.tell(member, hint))


async def _rest(event: asyncio.Event, seconds: float) -> None:
    """Wait for the event, and no longer than this."""
    alarm = asyncio.get_running_loop().call_later(seconds, event.set)
    try:
        await event.wait()
    finally:
        alarm.cancel()
    event.clear()
