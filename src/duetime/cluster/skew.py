"""How far this node's wall clock is from the database's."""

from duetime.clock import Clock
from duetime.store import Store


class Skew:
    """Measured with each heartbeat, less half the round trip."""

    def __init__(self, *, ms_max: int) -> None:
        self.ms: int | None = None  # How far we are ahead.
        self.ms_max = ms_max
        self.is_fine = True

    async def measure(self, store: Store, clock: Clock) -> bool | None:
        """Ask the database. Whether the clock is fine now, if that has changed; `StoreError`."""
        wall, asked_at = clock.now(), clock.monotonic()
        there = await store.now()
        took_ms = int((clock.monotonic() - asked_at) * 1000)
        return self.measured(wall, there, took_ms=took_ms, step_ms=store.traits.clock_step_ms)

    def measured(self, wall: int, there: int, *, took_ms: int, step_ms: int) -> bool | None:
        """It said `there`, asked when our clock showed `wall`; it took so long, in such steps."""
        self.ms = wall + took_ms // 2 - there
        doubt_ms = (took_ms + step_ms) // 2
        was_fine = self.is_fine
        # In doubt all stays as it is: a slow or a coarse answer proves nothing about a clock.
        if abs(self.ms) - doubt_ms > self.ms_max:
            self.is_fine = False
        elif abs(self.ms) + doubt_ms <= self.ms_max:
            self.is_fine = True
        return self.is_fine if self.is_fine != was_fine else None
