"""What other nodes ask of this one. Done on the shards that it owns, never passed on further:
two nodes that take each other for the owner would pass it back and forth."""

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec.structs import replace

from duetime.cluster.peers import Drain, Executing, ExecutingTimers, Operation, Put
from duetime.model import Timer
from duetime.operations import Operations


class Callee:
    """Called with an operation, answers as `peers` says."""

    def __init__(self, operations: Operations, *, drain: Callable[[bool], Awaitable[None]]) -> None:
        self._operations = operations
        self._drain = drain

    async def __call__(self, operation: Operation) -> Any:
        match operation:
            case Put(timers, again):
                return await self._operations.put_many(timers, again=again)
            case Executing(namespace):
                return [timer.uuid for timer in self._operations.executing(namespace)]
            case ExecutingTimers(namespace):
                return [_light(timer) for timer in self._operations.executing(namespace)]
            case Drain(undo):
                return await self._drain(undo)
            case _:
                scope = await self._operations.namespace(operation.key.namespace)
                return await self._operations.do(operation, scope)


def _light(timer: Timer) -> Timer:
    return replace(timer, payload=None, metadata=None, headers=None)
