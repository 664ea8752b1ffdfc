"""Timers, and the few things that most tests do with them."""

from itertools import count
from typing import Any

from duetime.model import CURSOR_MIN, INSTANT_MAX, FinalStatus, Finished, Lease, Timer
from duetime.routing import timer_uuid
from duetime.store import Batch, DueRead, Key, Store

NOW = 1_800_000_000_000


def a_timer(id: str = "a", *, namespace: str = "default", at: int = NOW, **fields: Any) -> Timer:
    """A timer like any other, but for what is given."""
    defaults: dict[str, Any] = {
        "shard": 0,
        "callback_url": "http://receiver.example/hook",
        "created_at": NOW - 60_000,
        "updated_at": NOW - 60_000,
        "scheduled_at": at,
        "timeout_s": 30,
        "reply": "v1",
    }
    return Timer(
        namespace=namespace,
        id=id,
        uuid=timer_uuid(namespace, id),
        execute_at=at,
        **defaults | fields,
    )


def an_id(first_byte: int, namespace: str = "default") -> str:
    """An id whose uuid begins with that byte."""
    ids = map(str, count())
    return next(it for it in ids if timer_uuid(namespace, it)[0] == first_byte)


def finished(
    timer: Timer,
    status: FinalStatus = "completed",
    *,
    at: int = NOW + 50,
    attempts: int = 1,
    last_error: str | None = None,
) -> Finished:
    return Finished(timer, status, at, attempts, last_error)


def as_kept(entry: Finished) -> Finished:
    """What is read back: `attempts` and `last_error` have replaced those of the timer."""
    fields = {name: getattr(entry.timer, name) for name in entry.timer.__struct_fields__}
    fields |= {"attempts": entry.attempts, "last_error": entry.last_error}
    return Finished(Timer(**fields), entry.status, entry.at, entry.attempts, entry.last_error)


def key(timer: Timer) -> Key:
    return Key(timer.shard, timer.namespace, timer.id)


def batch(
    lease: Lease,
    *,
    puts: list[Timer] | None = None,
    removes: list[Timer] | None = None,
    finished: list[Finished] | None = None,
) -> Batch:
    return Batch(lease, puts or [], removes or [], finished or [])


async def claimed(store: Store, shard: int = 0, owner: str = "node-a") -> Lease:
    (lease,) = await store.claim([shard], owner=owner, at=NOW)
    return lease


async def put(store: Store, lease: Lease, *timers: Timer) -> None:
    assert await store.apply([batch(lease, puts=list(timers))]) == frozenset()


async def everything(store: Store, shard: int = 0) -> list[Timer]:
    """All unfinished timers of a shard, in cursor order."""
    timers: list[Timer] = []
    after = CURSOR_MIN
    while True:
        (page,) = await store.due([DueRead(shard, after, INSTANT_MAX, 1_000)])
        timers += page.timers
        if not page.more:
            return timers
        after = page.timers[-1].cursor
