"""Group commit: one per node, for all its shards.

Whatever is waiting when the previous write returns goes into the next `store.apply`. There
is no timer and no added wait: at low load a write goes alone, under load thousands share
one commit. At most one write per shard is under way, so that a shard's writes take effect
in their order; how many calls run side by side is the store's trait, so that on a
partitioned store a slow shard does not hold up the others.
"""

import asyncio
import logging

from duetime.errors import StoreError
from duetime.shard import Shard
from duetime.store import Batch, Store
from duetime.writes import Write

log = logging.getLogger(__name__)


class Writer:
    """Takes what shards have pending. At `batch_timers_max` a write is full; the rest waits."""

    def __init__(self, store: Store, *, batch_timers_max: int) -> None:
        self._store = store
        self._batch_timers_max = batch_timers_max
        self._writes_in_flight_max = store.traits.writes_in_flight_max
        self._waiting: dict[Shard, None] = {}
        self._in_flight = 0
        self._tasks: set[asyncio.Task[None]] = set()  # The loop itself keeps only weak ones.
        self._flush_is_due = False
        self._idle = asyncio.Event()
        self._idle.set()

    def add(self, shard: Shard) -> None:
        """This shard has something pending."""
        if shard.writing or shard in self._waiting:
            return
        self._waiting[shard] = None
        self._idle.clear()
        if not self._flush_is_due and self._in_flight < self._writes_in_flight_max:
            # At the end of this turn of the loop: what else arrives in it comes along.
            self._flush_is_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    async def drained(self) -> None:
        """Wait until nothing is waiting or under way."""
        await self._idle.wait()

    def _flush(self) -> None:
        self._flush_is_due = False
        while self._waiting and self._in_flight < self._writes_in_flight_max:
            room = self._batch_timers_max
            batches: list[Batch] = []
            parts: list[tuple[Shard, list[Write]]] = []
            while self._waiting and room > 0:
                shard = next(iter(self._waiting))
                del self._waiting[shard]
                if not shard.pending:
                    continue
                batch, writes = shard.take_batch(room)
                shard.writing = True
                room -= len(writes)
                batches.append(batch)
                parts.append((shard, writes))
            if not parts:
                break
            task = asyncio.create_task(self._write(batches, parts))
            self._in_flight += 1
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if not self._waiting and not self._in_flight:
            self._idle.set()

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
                    if shard.pending:
                        self._waiting[shard] = None
        finally:
            self._in_flight -= 1
            self._flush()
