"""Many rows in few statements, none of them too large."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from duetime.model import Finished, Timer

T = TypeVar("T")


def chunks(rows: Sequence[T], sizes: Sequence[int]) -> Iterator[Sequence[T]]:
    """The rows in pieces of these sizes, the largest first. The last size is 1."""
    start = 0
    for size in sizes:
        while len(rows) - start >= size:
            yield rows[start : start + size]
            start += size


def runs(rows: Sequence[T], weight: Callable[[T], int], weight_max: int) -> Iterator[Sequence[T]]:
    """The rows in pieces that weigh no more; what is heavier alone is a piece of its own."""
    start, room = 0, weight_max
    for end, row in enumerate(rows):
        own = weight(row)
        if own > room and end > start:
            yield rows[start:end]
            start, room = end, weight_max
        room -= own
    if start < len(rows):
        yield rows[start:]


def weight_of(row: Timer | Finished) -> int:
    """What of it may be large, in bytes."""
    timer = row if isinstance(row, Timer) else row.timer
    return len(timer.payload or b"") + len(timer.metadata or b"")
