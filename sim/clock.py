"""A node's clocks: the wall clock may be off, drift and be set; the monotonic one never steps."""

from sim.loop import Schedule

EPOCH_MS = 1_800_000_000_000  # The true wall time at virtual time 0.


class SimClock:
    """Wall time as this machine believes it to be."""

    def __init__(self, schedule: Schedule, *, skew_ms: int = 0, drift_ppm: float = 0.0) -> None:
        self._schedule = schedule
        self._rate = 1.0 + drift_ppm / 1e6
        self._offset_us = (EPOCH_MS + skew_ms) * 1000
        self.set_at_us = 0
        """When somebody last set it."""

    def now(self) -> int:
        return (self._offset_us + int(self._schedule.now_us * self._rate)) // 1000

    def until(self, at: int) -> float:
        wall_us = self._offset_us + int(self._schedule.now_us * self._rate)
        left_us = at * 1000 - wall_us
        return left_us / self._rate / 1e6 if left_us > 0 else 0.0

    def monotonic(self) -> float:
        return self._schedule.now_us / 1e6

    def lead_ms(self) -> int:
        """How far it is ahead of true time."""
        return self.now() - true_ms(self._schedule)

    def step(self, ms: int) -> None:
        """Somebody sets the clock."""
        self._offset_us += ms * 1000
        self.set_at_us = self._schedule.now_us

    def correct(self) -> None:
        """It shows the true time, and keeps it."""
        self._rate = 1.0
        self._offset_us = EPOCH_MS * 1000


def true_ms(schedule: Schedule) -> int:
    """What a perfect clock shows."""
    return EPOCH_MS + schedule.now_us // 1000
