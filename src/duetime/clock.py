"""The only place that asks what time it is."""

import time
from typing import Protocol


class Clock(Protocol):
    """Time as the engine sees it; tests and the simulator bring their own."""

    def now(self) -> int:
        """The wall clock, in whole milliseconds since 1970 UTC, rounded down.

        Rounded down, so that "now has reached a timer's instant" is never true too early.
        """

    def until(self, at: int) -> float:
        """Seconds from now until the wall clock shows `at`; 0 when it already does."""

    def monotonic(self) -> float:
        """Seconds on a clock that never steps: waits and deadlines are measured by it.

        Time that the machine slept through counts: others did not sleep meanwhile.
        """


class SystemClock:
    """The machine's clocks."""

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def until(self, at: int) -> float:
        return max(0.0, at / 1000 - time.time())

    if hasattr(time, "CLOCK_BOOTTIME"):  # Linux, whose monotonic clock stops with the machine.

        def monotonic(self) -> float:
            return time.clock_gettime(time.CLOCK_BOOTTIME)

    else:

        def monotonic(self) -> float:
            return time.monotonic()
