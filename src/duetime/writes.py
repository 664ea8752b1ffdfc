"""What travels between a shard, firing and the writer: attempts, and changes to be written."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from duetime.errors import RequestError
from duetime.model import Finished, Timer
from duetime.retry import Answer

if TYPE_CHECKING:
    from duetime.shard import Shard


class Acknowledgement:
    """One future for any number of writes: a batch of a thousand needs no thousand futures."""

    __slots__ = ("_left", "future")

    def __init__(self, writes: int) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._left = writes

    def expect(self, writes: int) -> None:
        """So many more, before the last of those known has settled."""
        self._left += writes

    def settle(self) -> None:
        self._left -= 1
        if self._left == 0 and not self.future.done():
            self.future.set_result(None)


class Write(Struct, eq=False):
    """What is to change about one timer, atomically: at most one put, remove and record."""

    uuid: bytes
    put: Timer | None = None
    remove: Timer | None = None
    finished: Finished | None = None
    attempt: Attempt | None = None
    ack: Acknowledgement | None = None
    error: RequestError | None = None


class Attempt(Struct, eq=False):
    """One callback of one timer, from its start until its outcome is durable."""

    timer: Timer
    number: int
    shard: Shard
    destination: object
    host: AttemptHost
    started_at: int

    def stands(self) -> bool:
        """Whether it may still be sent. A carrier asks before the first byte leaves: while it
        looked up a name or connected, the shard may have become another node's, and the timer
        canceled there."""
        return self.host.stands(self)

    def answered(self, answer: Answer) -> None:
        """The carrier's word; comes once."""
        self.host.answered(self, answer)


class AttemptHost(Protocol):
    """Who hears what came of an attempt."""

    def stands(self, attempt: Attempt) -> bool: ...
    def answered(self, attempt: Attempt, answer: Answer) -> None: ...
