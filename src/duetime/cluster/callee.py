"""What other nodes ask of this one. Done on the shards that it owns, never passed on further:
two nodes that take each other for the owner would pass it back and forth.

Whoever hears no answer asks again. What it asked is then not done a second time: it hears what
came of the first.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from duetime.cluster.peers import Cancel, Drain, Executing, ExecutingTimers, Operation, Put, Update
from duetime.errors import RequestError, ShardMoved
from duetime.model import Timer, View
from duetime.operations import Operations

REMEMBERED_S = 10.0
"""Longer than anybody goes on asking."""
ASKS_MAX = 100_000
"""At this number the older half is forgotten sooner."""


class Callee:
    """Called with an operation, answers as `peers` says."""

    def __init__(self, operations: Operations, *, drain: Callable[[bool], Awaitable[None]]) -> None:
        self._operations = operations
        self._drain = drain
        self._asked = _Memory()

    async def __call__(self, operation: Operation) -> Any:
        match operation:
            case Put():
                return await self._put(operation)
            case Update() | Cancel():
                return await self._change(operation)
            case Executing(namespace):
                return [timer.uuid for timer in self._operations.executing(namespace)]
            case ExecutingTimers(namespace):
                return [_light(timer) for timer in self._operations.executing(namespace)]
            case Drain(undo):
                return await self._drain(undo)
            case _:
                scope = await self._operations.namespace(operation.key.namespace)
                return await self._operations.do(operation, scope)

    async def _put(self, put: Put) -> dict[int, RequestError]:
        timers = put.timers
        before = {
            uuid: (asked.work, place)
            for asked in self._asked.of(put.ask)
            for place, uuid in enumerate(asked.uuids)
        }
        failed: dict[int, RequestError] = {}
        left: list[int] = []
        for index, timer in enumerate(timers):
            found = before.get(timer.uuid)
            if found is None:
                left.append(index)
                continue
            work, place = found
            error = (await asyncio.shield(work)).get(place)
            if isinstance(error, ShardMoved):
                left.append(index)
            elif error is not None:
                failed[index] = error
        if left:
            mine = [timers[index] for index in left]
            work = self._begin(put.ask, self._operations.put_many(mine, again=put.again), mine)
            for at, error in (await asyncio.shield(work)).items():
                failed[left[at]] = error
        return failed

    async def _change(self, operation: Update | Cancel) -> View:
        for asked in self._asked.of(operation.ask):
            outcome: View | RequestError = await asyncio.shield(asked.work)
            if not isinstance(outcome, ShardMoved):
                break
        else:
            work = self._begin(operation.ask, self._outcome(operation))
            outcome = await asyncio.shield(work)
        if isinstance(outcome, RequestError):
            raise outcome
        return outcome

    async def _outcome(self, operation: Update | Cancel) -> View | RequestError:
        try:
            scope = await self._operations.namespace(operation.key.namespace)
            return await self._operations.do(operation, scope)
        except RequestError as error:
            return error

    def _begin(
        self, ask: str, work: Awaitable[Any], timers: Sequence[Timer] = ()
    ) -> "asyncio.Future[Any]":
        """Work that goes on to its end, whether or not somebody still waits for it."""
        task = asyncio.ensure_future(work)
        if ask:
            self._asked.add(ask, _Asked(tuple(timer.uuid for timer in timers), task))
        return task


class _Asked(NamedTuple):
    uuids: tuple[bytes, ...]
    """Of a put. Not its timers: these may weigh a lot."""
    work: "asyncio.Future[Any]"


class _Memory:
    """What was asked lately, in two halves: when one is old enough, the older one is dropped."""

    def __init__(self) -> None:
        self._newer: dict[str, list[_Asked]] = {}
        self._older: dict[str, list[_Asked]] = {}
        self._turns_at = 0.0

    def of(self, ask: str) -> list[_Asked]:
        """Oldest first."""
        return [*self._older.get(ask, ()), *self._newer.get(ask, ())]

    def add(self, ask: str, asked: _Asked) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._turns_at or len(self._newer) >= ASKS_MAX:
            self._older, self._newer = self._newer, {}
            self._turns_at = now + REMEMBERED_S
        self._newer.setdefault(ask, []).append(asked)


def _light(timer: Timer) -> Timer:
    return replace(timer, payload=None, metadata=None, headers=None)
