"""Group commit: one per node, for all its shards.

Whatever is waiting when the previous write returns goes into the next `store.apply`. There
is no timer and no added wait for whoever waits for an answer: at low load a write goes alone,
under load thousands share one commit. Nobody waits for the outcome of a callback, so outcomes
alone linger a moment, and share a commit with each other or with the next request: a commit
of two thousand rows costs half as much a row as one of five hundred.

What callers wait for goes first, and beside it only so many outcomes: a request made in the
middle of a burst waits for one such commit, not for all that the burst has piled up.

At most one write per shard is under way, so that a shard's writes take effect in their
order; how many calls run side by side is the store's trait, so that on a partitioned store a
slow shard does not hold up the others.
"""

import asyncio
import logging

from duetime.errors import StoreError
from duetime.shard import NOTICE, Shard
from duetime.store import Batch, Store
from duetime.writes import Write

log = logging.getLogger(__name__)

LINGER_S = 0.02
LINGER_TIMERS = 2_000
OUTCOMES_BESIDE_REQUESTS_MAX = 1_000


class Writer:
    """Takes what shards have to write. At `batch_timers_max` a write is full; the rest waits."""

    def __init__(self, store: Store, *, batch_timers_max: int) -> None:
        self._store = store
        self._batch_timers_max = batch_timers_max
        self._writes_in_flight_max = store.traits.writes_in_flight_max
        self._waiting: dict[Shard, None] = {}
        self._in_flight = 0
        self._tasks: set[asyncio.Task[None]] = set()  # The loop itself keeps only weak ones.
        self._flush_is_due = False
        self._urgent = False  # Something that waits is not to linger.
        self._lingering = 0  # How many wait, about.
        self._ripens: asyncio.TimerHandle | None = None  # When they have lingered enough.
        self._idle = asyncio.Event()
        self._idle.set()

    def add(self, shard: Shard, *, urgent: bool) -> None:
        """This shard has more to write; `urgent` if somebody waits for it."""
        if not shard.writing:  # Else it comes again when its write returns.
            self._wait(shard, min(len(shard.outcomes), NOTICE), urgent=urgent)

    def _wait(self, shard: Shard, writes: int, *, urgent: bool) -> None:
        self._waiting[shard] = None
        self._idle.clear()
        self._lingering += writes
        if urgent or self._lingering >= LINGER_TIMERS:
            self._hurry()
        elif self._ripens is None:
            self._ripens = asyncio.get_running_loop().call_later(LINGER_S, self._ripe)

    async def drained(self) -> None:
        """Wait until nothing is waiting or under way."""
        await self._idle.wait()

    def _ripe(self) -> None:
        self._ripens = None
        self._hurry()

    def _hurry(self) -> None:
        self._urgent = True
        if not self._flush_is_due and self._in_flight < self._writes_in_flight_max:
            # At the end of this turn of the loop: what else arrives in it comes along.
            self._flush_is_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_is_due = False
        while self._urgent and self._waiting and self._in_flight < self._writes_in_flight_max:
            batches, parts = self._take()
            if not self._waiting:
                self._nothing_waits()
            if not parts:
                break
            task = asyncio.create_task(self._write(batches, parts))
            self._in_flight += 1
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if not self._waiting and not self._in_flight:
            self._idle.set()

    def _take(self) -> tuple[list[Batch], list[tuple[Shard, list[Write]]]]:
        """The next write: of each waiting shard its requests, and outcomes as there is room."""
        shards = sorted(self._waiting, key=_without_requests)
        requests_left = outcomes_left = self._batch_timers_max
        if shards[0].requests:
            outcomes_left = min(outcomes_left, OUTCOMES_BESIDE_REQUESTS_MAX)
        batches: list[Batch] = []
        parts: list[tuple[Shard, list[Write]]] = []
        for shard in shards:
            requests = min(len(shard.requests), requests_left)
            outcomes = min(len(shard.outcomes), outcomes_left, requests_left - requests)
            if requests or outcomes:
                batch, writes = shard.take_batch(requests, outcomes)
                requests_left -= requests + outcomes
                outcomes_left -= outcomes
                shard.writing = True
                batches.append(batch)
                parts.append((shard, writes))
            elif shard.requests or shard.outcomes:
                continue  # No room: it goes on waiting.
            del self._waiting[shard]
        return batches, parts

    def _nothing_waits(self) -> None:
        self._urgent = False
        self._lingering = 0
        if self._ripens is not None:
            self._ripens.cancel()
            self._ripens = None

    async def _write(self, batches: list[Batch], parts: list[tuple[Shard, list[Write]]]) -> None:
        try:
            superseded = await self._store.apply(batches)
        except Exception as error:
            # A traceback only where it is our own mistake: a full disk needs none.
            log.error(  # noqa: TRY400
                "write failed",
                extra={"shards": len(parts), "reason": str(error)},
                exc_info=not isinstance(error, StoreError),
            )
            for shard, writes in parts:
                shard.writing = False
                shard.failed(writes)
        else:
            for shard, writes in parts:
                shard.writing = False
                if shard.number in superseded:
                    shard.superseded(writes)
                else:
                    shard.written(writes)
                    waiting = len(shard.requests) + len(shard.outcomes)
                    if waiting:
                        self._wait(shard, waiting, urgent=bool(shard.requests))
        finally:
            self._in_flight -= 1
            self._flush()


def _without_requests(shard: Shard) -> bool:
    return not shard.requests
