"""What is done to the timers of shards that are owned here. The values have been checked.

Whoever asks means the shard as it is now: when that is lost on the way, the answer is
`ShardMoved`, even if the node has become its owner anew meanwhile. So of what is asked in one
go about one key everything happens in its order, or from some point on nothing does.
"""

import logging
from collections.abc import Sequence
from typing import Protocol, TypeVar

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from duetime import rules
from duetime.clock import Clock
from duetime.cluster.peers import Cancel, Get, OnKey, Peers
from duetime.errors import (
    RequestError,
    ShardMoved,
    TimerExecuting,
    TimerFinished,
    TimerNotFound,
    Unavailable,
    UnknownNamespace,
)
from duetime.model import Finished, Namespace, Reply, Timer, View
from duetime.namespaces import Namespaces
from duetime.reads import Coalescer, answer_of
from duetime.requests import Changes
from duetime.routing import timer_uuid
from duetime.shard import Shard
from duetime.store import Key
from duetime.views import of_executing, of_finished, of_pending
from duetime.writes import Acknowledgement, Write

log = logging.getLogger(__name__)
T = TypeVar("T")


STOOD_MS = 60_000
"""What has not changed for so long was there before a request that is under way: more than nodes
go on asking, and their clocks differ."""
UNKNOWN = "the node that was asked gave no answer; whether this took effect is not known"


class Owner(Protocol):
    """What operations need of the node: its shards and its batched reads."""

    @property
    def clock(self) -> Clock: ...
    @property
    def namespaces(self) -> Namespaces: ...
    @property
    def peers(self) -> Peers | None: ...
    @property
    def shards(self) -> dict[int, Shard]: ...
    @property
    def timers(self) -> Coalescer[Key, Timer | None]: ...
    @property
    def outcomes(self) -> Coalescer[Key, Finished | None]: ...


class Operations:
    """Raises `RequestError`s, `ShardMoved` among them: then nothing took effect."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._clock = owner.clock
        self._shards = owner.shards
        self._namespaces = owner.namespaces
        self._searched = Coalescer(self._search, questions_max=1_000_000)

    async def namespace(self, name: str) -> Namespace:
        """`UnknownNamespace`. What is not known here may just have been created elsewhere."""
        found = self._namespaces.get(name)
        if found is None and self._owner.peers is not None:
            found = await answer_of(self._searched.ask(name))
        if found is None:
            raise UnknownNamespace(name)
        return found

    async def _search(self, names: Sequence[str]) -> list[Namespace | None]:
        await self._namespaces.load()
        return [self._namespaces.get(name) for name in names]

    async def do(self, operation: OnKey, scope: Namespace) -> View:
        """The operation on the one timer that it names."""
        key = operation.key
        shard = self._shards.get(key.shard)
        if shard is None:
            raise ShardMoved(key.shard)
        if isinstance(operation, Get):
            return await self.get(shard, key, scope)
        try:
            if isinstance(operation, Cancel):
                return await self.cancel(shard, key, scope)
            return await self.update(shard, key, scope, operation.changes, operation.reply)
        except Unavailable:
            raise
        except RequestError as refused:
            if not operation.again:
                raise
            is_canceled = isinstance(refused, TimerFinished) and refused.status == "canceled"
            if is_canceled and isinstance(operation, Cancel):
                return await self.get(shard, key, scope)
            raise Unavailable(UNKNOWN) from refused

    async def put(self, shard: Shard | None, timer: Timer) -> None:
        """Store the timer durably, in place of one of the same key. `shard` is its own, if it
        is here."""
        if shard is None:
            raise ShardMoved(timer.shard)
        ack = Acknowledgement(1)
        write = Write(timer.uuid, put=timer, ack=ack)
        if not shard.try_hold(timer.uuid):
            await shard.hold(timer.uuid)
        shard.stage(write, generation=shard.generation)
        await ack.future
        if write.error is not None:
            raise write.error
        _debug("timer created", timer)

    async def put_again(self, shard: Shard, timer: Timer) -> None:
        """The same, where another owner may have done it before: then it is not done twice.
        `Unavailable` where what is found does not tell."""
        uuid = timer.uuid
        scope = await self.namespace(timer.namespace)
        await shard.hold(uuid)
        generation = shard.generation
        try:
            is_done = await self._was_put(shard, timer, scope)
        except BaseException:
            shard.release(uuid)
            raise
        if is_done:
            shard.release(uuid)
        else:
            await _written(shard, Write(uuid, put=timer, ack=Acknowledgement(1)), generation)

    async def put_many(
        self, timers: Sequence[Timer], *, again: bool = False
    ) -> dict[int, RequestError]:
        """What went wrong, by index; of two with one key the later one wins."""
        failed: dict[int, RequestError] = {}
        staged: list[tuple[int, Write]] = []
        contended: list[tuple[int, Shard, Timer]] = []
        ack = Acknowledgement(1)
        for index, timer in enumerate(timers):
            shard = self._shards.get(timer.shard)
            if shard is None:
                failed[index] = ShardMoved(timer.shard)
            elif not again and shard.try_hold(timer.uuid):
                write = Write(timer.uuid, put=timer, ack=ack)
                staged.append((index, write))
                ack.expect(1)
                shard.stage(write, generation=shard.generation)
                _debug("timer created", timer)
            else:
                contended.append((index, shard, timer))
        ack.settle()
        await ack.future
        for index, write in staged:
            if write.error is not None:
                failed[index] = write.error
        # Somebody else is at these keys, or this batch itself was: one after the other.
        for index, shard, timer in contended:
            try:
                await (self.put_again if again else self.put)(shard, timer)
            except RequestError as error:
                failed[index] = error
        return failed

    async def get(self, shard: Shard, key: Key, scope: Namespace) -> View:
        """The timer as it stands, or what became of it while history has it."""
        uuid = timer_uuid(key.namespace, key.id)
        # Before the store is asked: by its answer the attempt may be over, and the row with it.
        if (attempt := shard.executing.get(uuid)) is not None:
            return of_executing(attempt.timer)
        timer = shard.window.get(uuid)
        if timer is None:
            timer = await self._timer_in_store(key)
            if (attempt := shard.executing.get(uuid)) is not None:
                return of_executing(attempt.timer)
        if shard.closed:
            raise ShardMoved(shard.number)  # Whether it is executing is known elsewhere.
        if timer is not None:
            return of_pending(timer)
        finished = await self._history(key, scope)
        if finished is None:
            raise TimerNotFound(key.namespace, key.id)
        return of_finished(finished)

    async def update(
        self, shard: Shard, key: Key, scope: Namespace, changes: Changes, reply: Reply
    ) -> View:
        """Change a pending timer; its attempts count anew. `TimerFinished`, `TimerExecuting`."""
        uuid = timer_uuid(key.namespace, key.id)
        await shard.hold(uuid)
        generation = shard.generation
        try:
            timer = await self._pending(shard, uuid, key, scope)
            changed = self._changed(timer, changes, scope, reply)
        except BaseException:
            shard.release(uuid)
            raise
        await _written(shard, Write(uuid, put=changed, ack=Acknowledgement(1)), generation)
        _debug("timer updated", changed)
        return of_pending(changed)

    async def cancel(self, shard: Shard, key: Key, scope: Namespace) -> View:
        """After this returns, the callback is never sent. `TimerFinished`, `TimerExecuting`."""
        uuid = timer_uuid(key.namespace, key.id)
        await shard.hold(uuid)
        generation = shard.generation
        try:
            timer = await self._pending(shard, uuid, key, scope)
        except BaseException:
            shard.release(uuid)
            raise
        finished = Finished(timer, "canceled", self._clock.now(), timer.attempts, timer.last_error)
        kept = finished if scope.history_retention_s > 0 else None
        write = Write(uuid, remove=timer, finished=kept, ack=Acknowledgement(1))
        await _written(shard, write, generation)
        _debug("timer canceled", timer)
        return of_finished(finished)

    def executing(self, namespace: str) -> list[Timer]:
        """Those of a namespace whose callback is under way, in no order."""
        return [
            attempt.timer
            for shard in self._shards.values()
            for attempt in shard.executing.values()
            if attempt.timer.namespace == namespace
        ]

    async def _was_put(self, shard: Shard, timer: Timer, scope: Namespace) -> bool:
        """Whether what stands under this key, or ended last, is this very timer; and if not, that
        it cannot have been. `Unavailable` if neither is certain."""
        key = Key(timer.shard, timer.namespace, timer.id)
        attempt = shard.executing.get(timer.uuid)
        found = attempt.timer if attempt is not None else shard.window.get(timer.uuid)
        if found is None:
            found = await self._timer_in_store(key)
        finished = await self._history(key, scope)
        if shard.closed:
            raise ShardMoved(shard.number)
        for known in (found, None if finished is None else finished.timer):
            if known is not None and _is_same(known, timer):
                return True
            # Changed since, or another's that came before ours or over it.
            if known is not None and known.updated_at > timer.created_at - STOOD_MS:
                raise Unavailable(UNKNOWN)
        if found is None and scope.history_retention_s == 0:
            raise Unavailable(UNKNOWN)  # It may have ended and left nothing.
        return False

    async def _pending(self, shard: Shard, uuid: bytes, key: Key, scope: Namespace) -> Timer:
        """The timer, which can be changed: the caller holds its key, so it cannot start."""
        if uuid in shard.executing:
            raise TimerExecuting(key.namespace, key.id)
        timer = shard.window.get(uuid)
        if timer is None:
            timer = await self._timer_in_store(key)
        if timer is not None:
            return timer
        finished = await self._history(key, scope)
        if finished is None:
            raise TimerNotFound(key.namespace, key.id)
        raise TimerFinished(key.namespace, key.id, finished.status)

    def _changed(self, old: Timer, changes: Changes, scope: Namespace, reply: Reply) -> Timer:
        now = self._clock.now()
        execute_at, scheduled_at = old.execute_at, old.scheduled_at
        if changes.execute_at is not UNSET:
            rule = rules.EXECUTE_AT[reply]
            execute_at = scheduled_at = rule(changes.execute_at, now, scope.min_delay_s)
        return replace(
            old,
            execute_at=execute_at,
            scheduled_at=scheduled_at,
            updated_at=now,
            callback_url=_given(changes.callback_url, old.callback_url),
            method=_given(changes.method, old.method),
            headers=_given(changes.headers, old.headers) or None,
            payload=_given(changes.payload, old.payload),
            metadata=_given(changes.metadata, old.metadata),
            retry=_given(changes.retry, old.retry),
            timeout_s=_given(changes.timeout_s, old.timeout_s),
            attempts=0,
            first_attempt_at=None,
            last_error=None,
        )

    async def _timer_in_store(self, key: Key) -> Timer | None:
        return await answer_of(self._owner.timers.ask(key))

    async def _history(self, key: Key, scope: Namespace) -> Finished | None:
        if scope.history_retention_s == 0:
            return None
        finished = await answer_of(self._owner.outcomes.ask(key))
        if finished is None:
            return None
        kept_since = self._clock.now() - scope.history_retention_s * 1000
        return finished if finished.at > kept_since else None


async def _written(shard: Shard, write: Write, generation: int) -> None:
    assert write.ack is not None
    shard.stage(write, generation=generation)
    await write.ack.future
    if write.error is not None:
        raise write.error


def _is_same(known: Timer, made: Timer) -> bool:
    """Whether the one is the other, some attempts later perhaps."""
    return made == replace(
        known,
        execute_at=made.execute_at,
        updated_at=made.updated_at,
        attempts=made.attempts,
        first_attempt_at=made.first_attempt_at,
        last_error=made.last_error,
    )


def _given(new: T | UnsetType, old: T) -> T:
    return old if new is UNSET else new


def _debug(event: str, timer: Timer) -> None:
    if log.isEnabledFor(logging.DEBUG):
        facts = {"namespace": timer.namespace, "id": timer.id, "execute_at": timer.execute_at}
        log.debug(event, extra=facts)
