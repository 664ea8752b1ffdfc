"""Reads that come one by one, asked of the store many at a time."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from duetime.errors import StoreError, Unavailable

log = logging.getLogger(__name__)
Q = TypeVar("Q")
A = TypeVar("A")


class Coalescer(Generic[Q, A]):
    """Calls `ask_many` with whatever was asked since its previous call returned.

    At `questions_max` a call is full; the rest waits for the next. An error that a call
    raises is raised to each who asked in it.
    """

    def __init__(
        self, ask_many: Callable[[Sequence[Q]], Awaitable[list[A]]], *, questions_max: int
    ) -> None:
        self._ask_many = ask_many
        self._questions_max = questions_max
        self._waiting: deque[tuple[Q, asyncio.Future[A]]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def ask(self, question: Q) -> A:
        answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, answer))
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return await answer

    async def _run(self) -> None:
        try:
            while self._waiting:
                count = min(len(self._waiting), self._questions_max)
                asked = [self._waiting.popleft() for _ in range(count)]
                try:
                    answers = await self._ask_many([question for question, _ in asked])
                except Exception as error:
                    for _, future in asked:
                        if not future.done():
                            future.set_exception(error)
                else:
                    for (_, future), answer in zip(asked, answers, strict=True):
                        if not future.done():
                            future.set_result(answer)
        finally:
            self._task = None


async def answer_of(call: Awaitable[A]) -> A:
    """What the store answers a caller who waits for it; `Unavailable` when it does not."""
    try:
        return await call
    except StoreError as error:
        log.warning("store does not answer", extra={"reason": str(error)})
        raise Unavailable("the database does not answer") from error
