"""Reads that come one by one are asked many at a time."""

import asyncio
from collections.abc import Sequence

import pytest

from duetime.errors import StoreUnavailable
from duetime.reads import Coalescer


class Source:
    """Doubles numbers, a call at a time, each of which waits to be let go."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.called = asyncio.Event()
        self.go = asyncio.Semaphore(0)
        self.error: Exception | None = None

    async def __call__(self, questions: Sequence[int]) -> list[int]:
        self.calls.append(list(questions))
        self.called.set()
        await self.go.acquire()
        if self.error is not None:
            raise self.error
        return [2 * question for question in questions]


def asking(reads: Coalescer[int, int], *questions: int) -> list[asyncio.Task[int]]:
    return [asyncio.create_task(reads.ask(question)) for question in questions]


async def test_what_is_asked_during_a_call_goes_into_the_next_one() -> None:
    source = Source()
    reads = Coalescer(source, questions_max=10)
    first = asking(reads, 1)
    await source.called.wait()
    later = asking(reads, 2, 3, 4)
    source.go.release()
    source.go.release()
    assert await asyncio.gather(*first, *later) == [2, 4, 6, 8]
    assert source.calls == [[1], [2, 3, 4]]


async def test_a_full_call_leaves_the_rest_to_the_next() -> None:
    source = Source()
    reads = Coalescer(source, questions_max=2)
    asked = asking(reads, 1, 2, 3, 4, 5)
    for _ in range(3):
        source.go.release()
    assert await asyncio.gather(*asked) == [2, 4, 6, 8, 10]
    assert source.calls == [[1, 2], [3, 4], [5]]


async def test_an_error_reaches_all_who_asked_in_the_call_and_nobody_else() -> None:
    source = Source()
    reads = Coalescer(source, questions_max=2)
    asked = asking(reads, 1, 2, 3)
    source.error = StoreUnavailable("gone")
    source.go.release()
    for each in asked[:2]:
        with pytest.raises(StoreUnavailable, match="gone"):
            await each
    source.error = None
    source.go.release()
    assert await asked[2] == 6


async def test_one_who_gives_up_waiting_disturbs_nobody() -> None:
    source = Source()
    reads = Coalescer(source, questions_max=10)
    quitter, stayer = asking(reads, 1, 2)
    await source.called.wait()
    quitter.cancel()
    source.go.release()
    assert await stayer == 4
    (after,) = asking(reads, 3)
    source.go.release()
    assert await after == 6
