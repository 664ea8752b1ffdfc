"""One node: keeps its shards stepping, reads and writes for them, drains, stops.

Which shards it owns is decided by `Alone`, where the store is its own, or by `Coordinator`,
where it shares the store with other nodes.

The node is the `Host` of its shards. One alarm serves them all: a heap says which shard is
to be stepped when, the loop sleeps until the first of these instants, and for a second at
most, so that a step of the wall clock is noticed.
"""

import asyncio
import logging
import os
import random
import socket
from collections.abc import Callable, Coroutine, Iterable
from heapq import heapify, heappop, heappush
from typing import Any

from msgspec.structs import replace

from duetime import __version__
from duetime.clock import Clock, SystemClock
from duetime.cluster.alone import Alone
from duetime.cluster.coordinator import Coordinator
from duetime.cluster.membership import Member, Membership
from duetime.cluster.peers import Peers
from duetime.config import Config
from duetime.errors import NamespaceExists, StoreError
from duetime.firing import Carrier, Firing
from duetime.handover import Handover
from duetime.model import DEFAULT_NAMESPACE, Lease, Namespace, Timer
from duetime.namespaces import Namespaces
from duetime.reads import Coalescer
from duetime.service import Service
from duetime.shard import Shard
from duetime.store import DueRead, Store
from duetime.writer import Writer

log = logging.getLogger(__name__)

ALARM_S_MAX = 1.0
UPKEEP_S = 0.9  # Less than the alarm's longest sleep, so that each such sleep ends in one.
BACKOFF_S_MIN = 0.05
BACKOFF_S_MAX = 2.0
PURGE_ROWS = 5_000
DUE_READS_PER_CALL = 4_096
KEYS_PER_CALL = 1_000
WINDOW_COUNT_AGE_S = 0.05


class Node:
    """`start` it, use its `service`, `drain` and `stop` it."""

    def __init__(
        self,
        config: Config,
        store: Store,
        carrier: Carrier,
        *,
        membership: Membership | None = None,
        peers: Peers | None = None,
        clock: Clock | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`membership` and `peers` are used only where the store is shared by several nodes;
        without a membership they meet in the store."""
        self.config = config
        self.store = store
        self.clock = SystemClock() if clock is None else clock
        self.me = Member(
            name=config.node_name or f"{socket.gethostname()}:{os.getpid()}",
            boot=f"{int(chance() * (1 << 32)):08x}",
            address="",
            started_at=self.clock.now(),
            version=__version__,
        )
        self.peers = peers if store.traits.shared else None
        self.shards: dict[int, Shard] = {}
        self.namespaces = Namespaces(store)
        self.firing = Firing(
            carrier,
            limits=config,
            namespace=self.namespaces.get,
            clock=self.clock,
            chance=chance,
        )
        self._carrier = carrier
        self._writer = Writer(store, batch_timers_max=config.write_batch_timers_max)
        self._due = Coalescer(store.due, questions_max=DUE_READS_PER_CALL)
        self.timers = Coalescer(store.get, questions_max=KEYS_PER_CALL)
        self.outcomes = Coalescer(store.outcomes, questions_max=KEYS_PER_CALL)
        self._ownership = (
            Coordinator(self, membership, peers) if store.traits.shared else Alone(self)
        )
        self.handover = Handover(
            store,
            callbacks_s_max=config.drain_timeout_s,
            released=self._ownership.released,
        )
        self.service = Service(self)
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at: int | None = None
        self._wakes: list[tuple[int, int]] = []
        # Dictionaries as ordered sets: the simulator's traces must not depend on addresses.
        self._recovering: dict[Shard, None] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._lost: list[Shard] = []
        self._upkeep_at = self._check_at = self._purge_at = 0.0
        self._window_count = (float("-inf"), 0)
        self._started = False
        self._retires = False
        self._draining = False
        self._stopped = False

    # -- life -------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the store, take the shards that are for us, begin to fire.

        Raises `StoreError`, and `RefusedStart` where this node must not take part.
        """
        await self.store.open()
        if self.peers is not None:
            self.peers.introduce(self.me.name, self.me.boot)
            self.me = replace(self.me, address=await self.peers.start())
        await self._ownership.join()
        await self.namespaces.load()
        if self.namespaces.get(DEFAULT_NAMESPACE) is None:
            now = self.clock.now()
            try:
                await self.namespaces.create(
                    Namespace(
                        name=DEFAULT_NAMESPACE,
                        num_shards=self.config.default_num_shards,
                        history_retention_s=self.config.history_retention_s,
                        min_delay_s=self.config.min_delay_s,
                        retry_policy=None,
                        created_at=now,
                        updated_at=now,
                    )
                )
            except NamespaceExists:
                log.debug("another node created the default namespace first")
        await self._ownership.begin()
        at = self.clock.monotonic()
        self._check_at = at + self.config.safety_read_s
        self._purge_at = at + self.config.purge_interval_s
        self._started = True
        self._arm()
        log.info("node started", extra={"node": self.me.name, "shards": len(self.shards)})

    async def hand_over(self) -> None:
        """Be about to stop, while requests still come: other nodes take the shards, and what is
        asked here is passed on to them. Where no others are, all stays until `drain`."""
        self._retires = True
        if self._started:
            await self._ownership.hand_over()

    async def drain(self) -> None:
        """Fire nothing new, let callbacks under way finish up to the bound, write everything,
        release the shards; the other nodes learn of it, and take them."""
        if self._draining or not self._started:
            return
        self._draining = True
        if self._alarm is not None:
            self._alarm.cancel()
        self.firing.stop()
        await self._ownership.drain()
        await self._writer.drained()
        for shard in self.shards.values():
            shard.closed = True  # Could not be written or released any more.
        log.info("node drained", extra={"node": self.me.name})

    async def stop(self) -> None:
        """Drain, then let go of connections and store. Stopping twice is fine."""
        if self._stopped:
            return
        self._stopped = True
        await self.drain()
        for task in list(self._tasks):
            task.cancel()
        await self._ownership.leave()
        if self.peers is not None:
            await self.peers.close()
        await self._carrier.close()
        await self.store.close()

    # -- who owns what ------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether requests and shards may be given to this node."""
        return self.unready() is None

    def unready(self) -> str | None:
        """Why not; None if they may."""
        if not self._started:
            return "this node is starting"
        if self._retires or self._draining:
            return "this node drains"
        return self._ownership.unready()

    async def drain_shards(self, undo: bool) -> None:
        """Begin to hand all shards over and take no more, until that is undone.
        `InvalidInput` where no other node could take them."""
        self._ownership.give_way(undo)

    def members(self) -> list[Member]:
        """All live nodes by name, this one included."""
        return self._ownership.members()

    def owner(self, shard: int) -> Member | None:
        """Who owns it, or is about to, as far as is known here."""
        return self._ownership.owner(shard)

    async def refresh_owners(self) -> None:
        """Find out anew who owns what; cheap however often it is asked. `StoreError`."""
        await self._ownership.refresh()

    async def own_shards(self) -> None:
        """Shards have come into use: have each owned by somebody. `StoreError`."""
        await self._ownership.complete()

    def own(self, leases: list[Lease]) -> None:
        """These shards are ours now: begin to fire."""
        for lease in leases:
            shard = self.shards[lease.shard] = Shard(lease, host=self, limits=self.config)
            self.wake(shard, 0)

    def describe(self, *, draining: bool, skew_ms: int | None, moves: int) -> Member:
        """`me`, with what it is doing at this moment."""
        return replace(
            self.me,
            draining=draining,
            shards=len(self.shards),
            in_flight=self.firing.in_flight,
            backlog=self.firing.waiting,
            skew_ms=skew_ms,
            moves=moves,
            namespaces=self.namespaces.revision,
        )

    # -- what shards ask of their host --------------------------------------------------

    def now(self) -> int:
        return self.clock.now()

    def fire(self, shard: Shard, due: list[Timer]) -> None:
        self.firing.offer(shard, due)

    def write(self, shard: Shard, *, urgent: bool) -> None:
        self._writer.add(shard, urgent=urgent)

    def recorded(self, outcomes: int) -> None:
        self.firing.recorded(outcomes)

    def read(self, shard: Shard, read: DueRead) -> None:
        self.spawn(self._read(shard, read, shard.generation))

    def recover(self, shard: Shard) -> None:
        if not self._recovering:
            self.spawn(self._recover())
        self._recovering[shard] = None

    def lost(self, shard: Shard) -> None:
        if self.shards.get(shard.number) is shard:
            del self.shards[shard.number]
        if not self._lost:
            asyncio.get_running_loop().call_soon(self._tell_lost)
        self._lost.append(shard)
        self.handover.gone(shard)

    def _tell_lost(self) -> None:
        lost, self._lost = self._lost, []
        log.warning("shards lost", extra={"shards": [shard.number for shard in lost]})
        self._ownership.lost()

    def vacated(self, shard: Shard) -> None:
        if self.shards.get(shard.number) is shard:
            del self.shards[shard.number]
        self.handover.vacated(shard)

    def window_room(self) -> int:
        at, count = self._window_count
        now = self.clock.monotonic()
        if now - at > WINDOW_COUNT_AGE_S:
            count = sum(len(shard.window) for shard in self.shards.values())
            self._window_count = (now, count)
        return self.config.window_timers_max - count

    def window_share(self) -> int:
        return self.config.window_timers_max // max(1, self.namespaces.num_shards_max())

    def wake(self, shard: Shard, at: int) -> None:
        if shard.wake_at is not None and shard.wake_at <= at:
            return
        shard.wake_at = at
        heappush(self._wakes, (at, shard.number))
        if self._alarm_at is None or at < self._alarm_at:
            self._arm()

    # -- the alarm ----------------------------------------------------------------------

    def _arm(self) -> None:
        if self._draining:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        loop = asyncio.get_running_loop()
        if self._wakes:
            self._alarm_at = self._wakes[0][0]
            delay_s = min(self.clock.until(self._alarm_at), ALARM_S_MAX)
        else:
            self._alarm_at, delay_s = None, ALARM_S_MAX
        self._alarm = loop.call_later(delay_s, self._ring)

    def _ring(self) -> None:
        self._alarm_at = 0  # Nothing that shards ask for meanwhile need arm it.
        now = self.clock.now()
        wakes, shards = self._wakes, self.shards
        if len(wakes) > 1_000 + 8 * len(shards):  # Mostly ones that were brought forward since.
            wakes[:] = {(s.wake_at, s.number) for s in shards.values() if s.wake_at is not None}
            heapify(wakes)
        while wakes and wakes[0][0] <= now:
            at, number = heappop(wakes)
            shard = shards.get(number)
            if shard is not None and shard.wake_at == at:
                shard.wake_at = None
                self.wake(shard, max(shard.step(now), now + 1))
        self._upkeep()
        self._arm()

    # -- reads, recovery, upkeep ----------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run this until it ends, or the node does."""
        task = asyncio.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task died", exc_info=error)

    async def _read(self, shard: Shard, read: DueRead, generation: int) -> None:
        try:
            page = await self._due.ask(read)
        except StoreError as error:
            log.warning("due read failed", extra={"shard": shard.number, "reason": str(error)})
            await asyncio.sleep(BACKOFF_S_MAX)
            shard.read_failed(generation=generation)
        else:
            shard.loaded(read, page, generation=generation)

    async def _recover(self) -> None:
        """Claim again the shards whose write failed, until the store lets us."""
        backoff_s = BACKOFF_S_MIN
        while True:
            shards = list(self._recovering)
            try:
                leases = await self._ownership.reclaim(shards)
            except StoreError as error:
                log.warning(
                    "store cannot be written to",
                    extra={"shards": len(shards), "reason": str(error)},
                )
                await asyncio.sleep(backoff_s)
                backoff_s = min(backoff_s * 2, BACKOFF_S_MAX)
                continue
            for shard in shards:
                del self._recovering[shard]
            again = bool(self._recovering)  # Before `restart`, which may call `recover`.
            for shard, lease in zip(shards, leases, strict=True):
                if shard.closed:
                    continue
                if lease is not None and lease.version == shard.lease.version + 1:
                    shard.restart(lease)
                    continue
                # Somebody else was the owner in between: what is left here is out of date.
                shard.superseded([])
                if lease is not None:
                    self.own([lease])
            log.info("store can be written to again", extra={"shards": len(shards)})
            if not again:
                return

    def _upkeep(self) -> None:
        """Every second: move what slow destinations hold up, claim what was lost; and now and
        then look for overlooked timers and purge old history."""
        at = self.clock.monotonic()
        if at < self._upkeep_at:
            return
        self._upkeep_at = at + UPKEEP_S
        self.firing.review(self.clock.now())
        self._ownership.upkeep()
        if at >= self._check_at:
            self._check_at = at + self.config.safety_read_s
            self.attempt("safety read", self._check(self.shards.values()))
        if at >= self._purge_at:
            self._purge_at = at + self.config.purge_interval_s
            if 0 in self.shards:  # One of the nodes is enough.
                self.attempt("purge", self._purge())

    def attempt(self, what: str, work: Coroutine[Any, Any, None]) -> None:
        """Spawn it; when the store fails, say so and leave it at that."""
        self.spawn(self._try(what, work))

    async def _try(self, what: str, work: Coroutine[Any, Any, None]) -> None:
        """Upkeep comes round again: when the store fails, say so and leave it at that."""
        try:
            await work
        except StoreError as error:
            log.warning("upkeep failed", extra={"what": what, "reason": str(error)})

    async def _check(self, shards: Iterable[Shard]) -> None:
        now = self.clock.now()
        asked = []
        for shard in shards:
            read = shard.safety_read(now)
            if read is not None:
                asked.append((shard, shard.generation, read))
        try:
            pages = await self.store.due([read for _, _, read in asked])
        except StoreError:
            for shard, generation, _ in asked:
                shard.read_failed(generation=generation)
            raise
        for (shard, generation, _), page in zip(asked, pages, strict=True):
            for timer in shard.checked(page, generation=generation):
                log.error(
                    "overdue timer was overlooked",
                    extra={"namespace": timer.namespace, "id": timer.id, "shard": shard.number},
                )

    async def _purge(self) -> None:
        for namespace in self.namespaces.all():
            before = self.clock.now() - namespace.history_retention_s * 1000
            deleted = PURGE_ROWS
            while deleted == PURGE_ROWS:
                deleted = await self.store.purge(namespace.name, before=before, limit=PURGE_ROWS)
