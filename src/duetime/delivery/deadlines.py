"""Deadlines of what is in flight, in buckets of 10 ms.

A timer of the event loop for each request costs more than the rest of its bookkeeping, and
nearly all of them are cancelled. Here a deadline is one entry in a set; one timer of the loop
watches the next bucket.
"""

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Generic, TypeVar

from duetime.clock import SystemClock

_TICKS_PER_S = 100

T = TypeVar("T")


class Deadlines(Generic[T]):
    """Calls `expire` with each item that is still here up to 20 ms after its deadline."""

    def __init__(self, loop: asyncio.AbstractEventLoop, expire: Callable[[T], None]) -> None:
        self._loop = loop
        self._expire = expire
        # Not the loop's own time: uvloop's stands still while it is busy, and a deadline
        # counted from there would come too early.
        self._now = SystemClock().monotonic
        self._buckets: dict[int, set[T]] = {}
        self._ticks: list[int] = []
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_tick = 0

    def add(self, item: T, timeout_s: float) -> set[T]:
        """Watch the item from now on, until it is discarded from the set that is answered."""
        tick = int((self._now() + timeout_s) * _TICKS_PER_S) + 1
        bucket = self._buckets.get(tick)
        if bucket is None:
            bucket = self._buckets[tick] = set()
            heappush(self._ticks, tick)
            if self._alarm is None or tick < self._alarm_tick:
                self._set_alarm()
        bucket.add(item)
        return bucket

    @property
    def watched(self) -> int:
        """How many instants there are for which the loop will wake."""
        return len(self._ticks)

    def close(self) -> None:
        """Forget everything."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._buckets.clear()
        self._ticks.clear()

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_tick = self._ticks[0]
        delay_s = self._alarm_tick / _TICKS_PER_S - self._now()
        self._alarm = self._loop.call_later(max(0.0, delay_s), self._ring)

    def _ring(self) -> None:
        self._alarm = None
        tick_now = int(self._now() * _TICKS_PER_S)
        try:
            # Buckets that have emptied go at once: when all is quiet, nothing rings any more.
            while self._ticks and (self._ticks[0] <= tick_now or not self._buckets[self._ticks[0]]):
                bucket = self._buckets[self._ticks[0]]
                if bucket:
                    self._expire(bucket.pop())
                else:
                    del self._buckets[heappop(self._ticks)]
        finally:
            if self._ticks:
                self._set_alarm()
