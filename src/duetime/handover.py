"""Shards on their way out: each is released as soon as nothing of it is under way."""

import asyncio
import logging
from collections.abc import Callable, Iterable

from duetime.errors import StoreError
from duetime.model import Lease
from duetime.shard import Shard
from duetime.store import Store

log = logging.getLogger(__name__)

FLUSH_S = 5.0  # What writing down the rest may take, once callbacks were cut short.


class Handover:
    """Lets shards leave, side by side. `released` hears which leases were given back, or that
    the store failed to take them (None); they are then still in our name."""

    def __init__(
        self,
        store: Store,
        *,
        callbacks_s_max: float,
        released: Callable[[list[Lease] | None], None],
    ) -> None:
        self._store = store
        self._callbacks_s_max = callbacks_s_max
        self._released = released
        self._leaving: dict[Shard, None] = {}
        self._vacant: list[Lease] = []
        self._task: asyncio.Task[None] | None = None
        self._over = asyncio.Event()
        self._over.set()

    def begin(self, shards: Iterable[Shard]) -> None:
        """Have these leave. Callbacks under way may take `callbacks_s_max` to finish."""
        leaving = [shard for shard in shards if not (shard.leaving or shard.closed)]
        if not leaving:
            return
        self._over.clear()
        self._leaving.update(dict.fromkeys(leaving))
        for shard in leaving:
            shard.leave()
        if not all(shard.closed for shard in leaving):
            asyncio.get_running_loop().call_later(self._callbacks_s_max, self._cut_short, leaving)

    def vacated(self, shard: Shard) -> None:
        """This one has nothing left to do here."""
        self._vacant.append(shard.lease)
        self.gone(shard)

    def gone(self, shard: Shard) -> None:
        """This one was vacated, or lost."""
        self._leaving.pop(shard, None)
        if self._vacant:
            if self._task is None:
                self._task = asyncio.create_task(self._release())
        elif not self._leaving and self._task is None:
            self._over.set()

    async def over(self) -> bool:
        """Wait until all have left. False if the store did not let them for too long."""
        try:
            await asyncio.wait_for(self._over.wait(), self._callbacks_s_max + FLUSH_S)
        except TimeoutError:
            return False
        return True

    def _cut_short(self, shards: list[Shard]) -> None:
        late = [shard for shard in shards if shard in self._leaving]
        if late:
            callbacks = sum(len(shard.executing) for shard in late)
            log.warning("callbacks cut short", extra={"shards": len(late), "callbacks": callbacks})
        for shard in late:
            shard.cut_short()

    async def _release(self) -> None:
        try:
            while self._vacant:
                leases, self._vacant = self._vacant, []
                try:
                    await self._store.release(leases)
                except StoreError as error:
                    log.warning(
                        "shards not released", extra={"shards": len(leases), "reason": str(error)}
                    )
                    self._released(None)
                else:
                    self._released(leases)
        finally:
            self._task = None
            if not self._leaving:
                self._over.set()
