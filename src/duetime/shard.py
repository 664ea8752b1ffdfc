"""One owned shard: its window, the operations upon it, and what is to be written.

A pure state machine: `step(now)` and events in, writes and firings out. It has no task of
its own and never waits; what it needs of the world it asks its `Host` for.

Three facts about a timer decide everything, and each is kept in one place:

- *live* (the window): in memory, waiting or handed to firing, not yet started.
- *executing*: its callback is under way, or has been answered and is not yet recorded.
- *held*: one operation at a time owns a key, from before it looks until its write is
  durable. A held timer is not started, so a cancel that is acknowledged was never outrun;
  the next operation on the key waits its turn.

A page read and a write may overlap, and either may be seen first. So while a read is under
way the keys whose write ended meanwhile are noted (`_settled`) with what was put beyond the
window, and of the page that arrives their rows are ignored: memory already knows better.
Rows of held keys are set aside until the operation ends.

After a failed write nothing is known, so the shard stops, is claimed anew (which fences
whatever write may still be on its way) and loads its window from the start. Outcomes that
could not be recorded are kept and written again under the new lease.

A shard that is to go to another node *leaves*: it starts no more callbacks, and as soon as
none is under way and all is written it closes and its host gives the lease back. It serves
requests for as long as callbacks hold it up, and not after, so that it does get away.
"""

import asyncio
from collections import deque
from typing import Protocol

from duetime.errors import ShardMoved, Unavailable
from duetime.model import CURSOR_MIN, Cursor, Finished, Lease, Timer
from duetime.store import Batch, DueRead, Page
from duetime.window import Window
from duetime.writes import Attempt, AttemptHost, Write

_LAST_UUID = b"\xff" * 16
# Rows younger than this may belong to a write that is just being acknowledged: no finding.
SAFETY_AGE_MS = 5_000
NOTICE = 32
ROOM_POLL_MS = 1_000


class ShardLimits(Protocol):
    """The settings a shard reads; `Config` has them."""

    @property
    def window_page_timers(self) -> int: ...
    @property
    def lookahead_s_max(self) -> int: ...


class Host(Protocol):
    """What a shard asks of the node it lives in. None of these waits or calls back at once."""

    def fire(self, shard: "Shard", due: list[Timer]) -> None:
        """These are due. Start each with `shard.start` when there is room for it."""

    def write(self, shard: "Shard", *, urgent: bool) -> None:
        """There is more to write; `urgent` if somebody waits for it. Of outcomes, which come in
        bursts, one in `NOTICE` is told."""

    def read(self, shard: "Shard", read: DueRead) -> None:
        """Read this page and hand it to `shard.loaded`."""

    def wake(self, shard: "Shard", at: int) -> None:
        """Call `step` no later than at `at`."""

    def recover(self, shard: "Shard") -> None:
        """A write failed: claim the shard again and call `restart` with the new lease."""

    def lost(self, shard: "Shard") -> None:
        """Another owner has claimed the shard; this object is done for."""

    def vacated(self, shard: "Shard") -> None:
        """A shard that leaves has nothing under way or unwritten any more, and has closed."""

    def window_room(self) -> int:
        """How many more timers the windows of all shards together may take in, about."""

    def window_share(self) -> int:
        """How many timers each shard may hold when there is no room left."""

    def recorded(self, outcomes: int) -> None:
        """So many outcomes of attempts were written, or will never be."""

    def now(self) -> int:
        """The wall clock."""


class Shard:
    """See the module's text. The writer takes `requests` before `outcomes`: callers wait, and
    as no two of them concern one key, their order among each other is free."""

    __slots__ = (
        "_aside",
        "_generation",
        "_held",
        "_host",
        "_limits",
        "_more",
        "_page_timers",
        "_reading",
        "_settled",
        "_unrecorded",
        "closed",
        "executing",
        "lease",
        "leaving",
        "number",
        "outcomes",
        "paused",
        "requests",
        "wake_at",
        "window",
        "writing",
    )

    def __init__(self, lease: Lease, *, host: Host, limits: ShardLimits) -> None:
        self.number = lease.shard
        self.lease = lease
        self.window = Window()
        self.executing: dict[bytes, Attempt] = {}
        self.requests: list[Write] = []
        self.outcomes: list[Write] = []
        self.writing = False  # The writer's: at most one write per shard is under way.
        self.wake_at: int | None = None  # The host's: when it will call `step`.
        self.paused = False  # Between a failed write and the new lease.
        self.leaving = False  # On its way to another node: fires nothing new.
        self.closed = False
        self._host = host
        self._limits = limits
        self._held: dict[bytes, deque[asyncio.Future[None] | Write] | None] = {}
        self._unrecorded: list[Write] = []
        self._more = True  # The store has more up to the lookahead than was loaded.
        self._reading = False
        self._generation = 0
        self._page_timers = self._share()
        self._settled: dict[bytes, Timer | None] = {}
        self._aside: dict[bytes, Timer] = {}

    # -- time -------------------------------------------------------------------------

    def step(self, now: int) -> int:
        """Hand out what is due, ask for the next page when it is time; when to step again."""
        if self.paused or self.leaving or self.closed:
            return now + 60_000
        due = self.window.take_due(now)
        if due:
            self._host.fire(self, due)
        load_at = self._load_at()
        if load_at <= now:
            self._load(now)
            load_at = now + 60_000  # The page's arrival steps again, much sooner.
        next_at = self.window.next_at()
        return load_at if next_at is None else min(next_at, load_at)

    def _load_at(self) -> int:
        """When the next page is to be asked for."""
        never = self._host.now() + 60_000
        if self._reading:
            return never
        if self._more:
            waiting = len(self.window)
            if waiting * 2 > self._page_timers:
                return never  # We are woken when enough of them have left.
            if waiting and self._host.window_room() <= 0:
                return self._host.now() + ROOM_POLL_MS  # Other shards make room, and tell nobody.
            return 0
        lookahead_ms = self._limits.lookahead_s_max * 1000
        return self.window.loaded_to.execute_at - min(lookahead_ms // 10, 5_000)

    def _load(self, now: int) -> None:
        self._reading = True
        self._host.read(
            self,
            DueRead(
                self.number,
                self.window.loaded_to,
                # Never behind the window's end, where a wall clock that was set back may be.
                max(now + self._limits.lookahead_s_max * 1000, self.window.loaded_to.execute_at),
                self._page_timers,
            ),
        )

    def _share(self) -> int:
        return min(self._limits.window_page_timers, max(10, self._host.window_share()))

    # -- pages ------------------------------------------------------------------------

    @property
    def generation(self) -> int:
        """Goes up when the window starts anew: a page read before that must be thrown away."""
        return self._generation

    def loaded(self, read: DueRead, page: Page, *, generation: int) -> None:
        """The page asked for by `Host.read` is here."""
        if generation != self._generation or self.closed:
            return
        self._reading = False
        window = self.window
        settled, self._settled = self._settled, {}
        timers = self._unknown(page.timers, settled)
        self._more = page.more
        if page.more:
            # Pages start small where shards are many, and grow where one turns out busy.
            self._page_timers = min(self._page_timers * 2, self._limits.window_page_timers)
            window.extend(timers, page.timers[-1].cursor)
        else:
            self._page_timers = self._share()
            window.extend(timers, Cursor(read.until, _LAST_UUID))
        for put in settled.values():
            if put is not None and put.cursor <= window.loaded_to:
                window.add(put)
        self._host.wake(self, 0)

    def read_failed(self, *, generation: int) -> None:
        """The page could not be read. Whoever calls has waited before: ask again."""
        if generation == self._generation and not self.closed:
            self._reading = False
            self._settled.clear()
            self._host.wake(self, 0)

    def safety_read(self, now: int) -> DueRead | None:
        """What to read to make sure that nothing overdue was overlooked; None if not now.

        It counts as the shard's read: `checked` or `read_failed` must follow.
        """
        if self.paused or self.leaving or self.closed or self._reading:
            return None
        self._reading = True
        until = min(self.window.loaded_to.execute_at, now - SAFETY_AGE_MS)
        return DueRead(self.number, CURSOR_MIN, until, self._limits.window_page_timers)

    def checked(self, page: Page, *, generation: int) -> list[Timer]:
        """The safety read is here: takes in, and answers, what memory did not know."""
        if generation != self._generation or self.closed:
            return []
        self._reading = False
        settled, self._settled = self._settled, {}
        window = self.window
        unknown = self._unknown(page.timers, settled)
        # Of those at the very instant where the window ends, some are yet to be loaded.
        missed = [
            timer
            for timer in unknown
            if timer.cursor <= window.loaded_to and window.get(timer.uuid) is None
        ]
        for timer in missed:
            window.add(timer)
        self._host.wake(self, 0)
        return missed

    def _unknown(self, timers: list[Timer], settled: dict[bytes, Timer | None]) -> list[Timer]:
        """Those that memory does not know better about. Rows of held keys are set aside."""
        executing, held = self.executing, self._held
        if not (executing or held or settled):
            return timers
        unknown = []
        for timer in timers:
            uuid = timer.uuid
            attempt = executing.get(uuid)
            if uuid in settled or (
                attempt is not None and attempt.timer.execute_at == timer.execute_at
            ):
                continue
            if uuid in held:
                self._aside[uuid] = timer
            else:
                unknown.append(timer)
        return unknown

    # -- holding a key ----------------------------------------------------------------

    def try_hold(self, uuid: bytes) -> bool:
        """Own this key if nobody does."""
        if uuid in self._held:
            return False
        self._held[uuid] = None
        return True

    async def hold(self, uuid: bytes) -> None:
        """Own this key, after all who asked before."""
        if self.try_hold(uuid):
            return
        queue = self._held[uuid]
        if queue is None:
            queue = self._held[uuid] = deque()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release(uuid)  # It was our turn already: pass it on.
            raise

    def release(self, uuid: bytes) -> None:
        """Nothing was written: what the store holds of this key stands."""
        aside = self._aside.pop(uuid, None)
        self._pass_on(uuid)
        if aside is not None:  # Not loaded, or passed over by firing, while it was held.
            self.window.add(aside)
            self._host.wake(self, aside.execute_at)

    def _pass_on(self, uuid: bytes) -> None:
        queue = self._held.get(uuid)
        while queue:
            waiting = queue.popleft()
            if isinstance(waiting, Write):
                attempt = waiting.attempt
                assert attempt is not None
                if self.executing.get(uuid) is attempt:
                    self._stage(waiting)
                    return
                self._host.recorded(1)  # Superseded by the create it waited for.
            elif not waiting.done():
                waiting.set_result(None)
                return
        self._held.pop(uuid, None)

    # -- firing -----------------------------------------------------------------------

    def start(
        self, timer: Timer, destination: object, host: AttemptHost, now: int
    ) -> Attempt | None:
        """Begin an attempt; None if the timer is not to be fired (any more)."""
        if self.paused or self.leaving or self.closed:
            return None
        if timer.uuid in self._held:
            if self.window.get(timer.uuid) is timer:
                self._aside[timer.uuid] = timer
            return None
        if timer.execute_at > now:
            # The wall clock was set back since this was handed out: it waits for its time again.
            if self.window.get(timer.uuid) is timer:
                self.window.add(timer)
                self._host.wake(self, timer.execute_at)
            return None
        if not self.window.start(timer):
            return None
        attempt = Attempt(timer, timer.attempts + 1, self, destination, host, now)
        self.executing[timer.uuid] = attempt
        self._refill()
        return attempt

    def _refill(self) -> None:
        """Step soon if so much has left the window that the next page is to be asked for."""
        if self._more and not self._reading and len(self.window) * 2 <= self._page_timers:
            self._host.wake(self, 0)

    def is_at(self, attempt: Attempt) -> bool:
        """Whether this attempt is what the timer is at: not after the shard was lost or left,
        nor after a newer schedule has taken its place."""
        return not self.closed and self.executing.get(attempt.timer.uuid) is attempt

    def take_back(self, attempt: Attempt) -> None:
        """It was not sent: its timer waits again, if it is still here."""
        if not self.is_at(attempt):
            return
        timer = attempt.timer
        del self.executing[timer.uuid]
        if timer.uuid in self._held:  # A create over it is on its way, and decides.
            self._aside[timer.uuid] = timer
        else:
            self.window.add(timer)
            self._host.wake(self, timer.execute_at)
        if self.leaving:
            self._go()

    def conclude(
        self,
        attempt: Attempt,
        *,
        put: Timer | None = None,
        remove: Timer | None = None,
        finished: Finished | None = None,
    ) -> bool:
        """Record what came of an attempt. False if a newer schedule has taken its place."""
        uuid = attempt.timer.uuid
        if not self.is_at(attempt):
            return False
        write = Write(uuid, put=put, remove=remove, finished=finished, attempt=attempt)
        if uuid in self._held:  # A create over it is on its way, and decides.
            queue = self._held[uuid]
            if queue is None:
                queue = self._held[uuid] = deque()
            queue.append(write)
        else:
            self._held[uuid] = None
            self._stage(write)
        return True

    def defer(self, timer: Timer, put: Timer) -> bool:
        """Move a timer that was handed out to a later time; False if it may not be now."""
        if self.paused or self.leaving or self.closed:
            return False
        if self.window.get(timer.uuid) is not timer:
            return False
        if not self.try_hold(timer.uuid):
            return False
        self._stage(Write(timer.uuid, put=put))
        return True

    # -- writing ----------------------------------------------------------------------

    def stage(self, write: Write, *, generation: int) -> None:
        """Have this written. The caller holds its key, and gives it up with this call.

        `generation` is that of when the caller looked: after a restart somebody else may have
        written in between, and what was decided on the old state must not be.
        """
        if self.closed or (self.leaving and not self.executing):
            self._refuse(write, moved=True)
        elif self.paused or generation != self._generation:
            self._refuse(write)
        else:
            self._stage(write)

    def _stage(self, write: Write) -> None:
        if self.closed:
            self._refuse(write, moved=True)
        elif self.paused:  # Only outcomes come here then: they wait for the new lease.
            self._unrecorded.append(write)
        else:
            if write.ack is not None:
                self.requests.append(write)
                self._host.write(self, urgent=True)
                return
            outcomes = self.outcomes
            outcomes.append(write)
            if len(outcomes) % NOTICE == 1:
                self._host.write(self, urgent=False)

    def take_batch(self, requests_max: int, outcomes_max: int) -> tuple[Batch, list[Write]]:
        """What is to be written next, as the store takes it and as we remember it."""
        writes = self.requests[:requests_max]
        self.requests = self.requests[requests_max:]
        if outcomes_max > 0 and self.outcomes:
            writes += self.outcomes[:outcomes_max]
            self.outcomes = self.outcomes[outcomes_max:]
        batch = Batch(
            self.lease,
            [write.put for write in writes if write.put is not None],
            [write.remove for write in writes if write.remove is not None],
            [write.finished for write in writes if write.finished is not None],
        )
        return batch, writes

    def written(self, writes: list[Write]) -> None:
        """These are durable: memory follows, keys are passed on, callers are answered."""
        window, executing, held = self.window, self.executing, self._held
        loaded_to, reading, settled = window.loaded_to, self._reading, self._settled
        wake_at: int | None = None
        outcomes = 0
        for write in writes:
            uuid, put = write.uuid, write.put
            if executing:
                # Its own attempt has ended; one that a create came over is superseded.
                executing.pop(uuid, None)
            if write.attempt is None:
                window.drop(uuid)
            else:
                outcomes += 1
            if self._aside:
                self._aside.pop(uuid, None)
            beyond = put
            if put is not None and (put.execute_at, uuid) <= loaded_to:
                beyond = None
                window.add(put)
                if wake_at is None or put.execute_at < wake_at:
                    wake_at = put.execute_at
            if reading:
                settled[uuid] = beyond
            if held[uuid]:
                self._pass_on(uuid)
            else:
                del held[uuid]
            if write.ack is not None:
                write.ack.settle()
        if outcomes:
            self._host.recorded(outcomes)
        if wake_at is not None:
            self._host.wake(self, wake_at)
            self._give_up_tail()
        self._refill()  # What was canceled, moved or deferred has left the window, too.
        if self.leaving:
            self._go()

    def _give_up_tail(self) -> None:
        # A page under way continues where the window ends: the end must not move under it.
        if not self._reading and self._host.window_room() < 0:
            keep = self._share()
            if len(self.window) > keep * 2:
                self.window.trim(keep)
                self._more = True

    def failed(self, writes: list[Write]) -> None:
        """Nothing is known about these. Stop, keep the outcomes, refuse the rest."""
        writes = writes + self._take_all()
        if self.closed:  # The shard was lost meanwhile, and is nobody's here to claim again.
            for write in writes:
                self._refuse(write)
            return
        self.paused = True
        for write in writes:
            if write.attempt is not None:
                self._unrecorded.append(write)
            else:
                self._refuse(write)
        self._host.recover(self)

    def superseded(self, writes: list[Write]) -> None:
        """Another owner has claimed the shard: nothing of this was written, nothing will be."""
        self.closed = True
        writes = writes + self._take_all() + self._unrecorded
        self._unrecorded = []
        for write in writes:
            self._refuse(write, moved=True)
        self.executing.clear()
        self.window = Window()
        self._host.lost(self)

    def restart(self, lease: Lease) -> None:
        """Go on under a new lease, with a window that is loaded from the start."""
        assert lease.shard == self.number
        assert lease.version > self.lease.version
        self.lease = lease
        self._generation += 1
        self.window = Window()
        self.paused = False
        self._more, self._reading = True, False
        self._page_timers = self._share()
        self._settled, self._aside = {}, {}
        unrecorded, self._unrecorded = self._unrecorded, []
        for write in unrecorded:
            self._stage(write)
        self._host.wake(self, 0)
        if self.leaving:
            self._go()

    # -- leaving ----------------------------------------------------------------------

    def leave(self) -> None:
        """Start no more callbacks, and close once those under way are over and written."""
        if not self.leaving and not self.closed:
            self.leaving = True
            self._go()

    def cut_short(self) -> None:
        """Leave without waiting for callbacks under way: the next owner will fire them again."""
        assert self.leaving
        self.executing.clear()
        self._go()

    def _go(self) -> None:
        under_way = self.executing or self.requests or self.outcomes or self._unrecorded
        if not (under_way or self.writing or self.paused or self.closed):
            self.closed = True
            self.window = Window()
            self._host.vacated(self)

    def _take_all(self) -> list[Write]:
        waiting = self.requests + self.outcomes
        self.requests, self.outcomes = [], []
        return waiting

    def _refuse(self, write: Write, *, moved: bool = False) -> None:
        if write.attempt is not None:
            self._host.recorded(1)
        write.error = (
            ShardMoved(self.number)
            if moved
            else Unavailable(
                "the database could not be written to; whether this took effect is not known"
            )
        )
        self.release(write.uuid)
        if write.ack is not None:
            write.ack.settle()
