"""How long a node may act on the shards it owns without having heard of the others."""

from math import inf

TRUSTED_SHARE = 0.75
"""Of the time after which a silent node is dead; the rest is for clocks that drift."""


class Trust:
    """Runs from before a heartbeat was asked for, because a slow answer must not lengthen it.

    While it holds, nobody takes this node for dead. Once it has run out, somebody may have:
    then a heartbeat that is confirmed again is not enough, who owns what must have been read
    after it. All instants are of one monotonic clock.
    """

    def __init__(self, *, span_s: float) -> None:
        self._span_s = span_s
        self._asked_at = -inf  # The newest heartbeat that was confirmed.
        self._back_since = -inf  # When the first one after a gap was.
        self._lapsed = True

    @property
    def until(self) -> float:
        """When it runs out; in the past if it has."""
        return -inf if self._lapsed else self._asked_at + self._span_s

    @property
    def lapsed(self) -> bool:
        """Whether who owns what must be read for it to hold again."""
        return self._lapsed

    def is_heard(self, now: float) -> bool:
        """Whether nobody takes us for dead now, whatever they did before."""
        return now < self._asked_at + self._span_s

    def confirmed(self, asked_at: float, now: float) -> None:
        """A heartbeat that was asked for at `asked_at` has been confirmed."""
        if not self.is_heard(now):
            self._lapsed = True
            self._back_since = now
        self._asked_at = asked_at

    def owners_read(self, asked_at: float, now: float) -> None:
        """Who owns what was read, asked for at `asked_at`; what was lost is given up."""
        if asked_at >= self._back_since and self.is_heard(now):
            self._lapsed = False
