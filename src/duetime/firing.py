"""Due timers under their bounds."""

from typing import Protocol

from duetime.model import Timer
from duetime.retry import Answer


class Attempt(Protocol):
    """One callback under way."""

    timer: Timer
    number: int

    def answered(self, answer: Answer) -> None:
        """Called once, never from within `Carrier.send`, unless the carrier was closed."""


class Carrier(Protocol):
    """What makes one attempt. It does not touch the store and keeps no schedule."""

    def destination(self, url: str) -> str:
        """Whom the url reaches: what shares one bound on callbacks in flight. Cheap."""

    def send(self, attempt: Attempt) -> None:
        """Begin the attempt; returns at once, never raises."""

    async def close(self) -> None:
        """Drop everything in flight without an answer, within 100 ms."""
