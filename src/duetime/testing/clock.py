"""A clock that stands still until it is told to move."""


class FakeClock:
    """Wall and monotonic time for tests. `step_wall` is somebody setting the clock."""

    def __init__(self, now: int = 1_800_000_000_000) -> None:
        self._now = now
        self._monotonic = 0.0

    def now(self) -> int:
        return self._now

    def until(self, at: int) -> float:
        return max(0.0, (at - self._now) / 1000)

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, ms: int) -> int:
        """Let this much time pass; answers the new wall time."""
        self._now += ms
        self._monotonic += ms / 1000
        return self._now

    def step_wall(self, ms: int) -> int:
        """Set the wall clock forth or back; the monotonic one does not notice."""
        self._now += ms
        return self._now
