"""The database of a simulated world: the port's semantics, with a network in between.

`Database` is the one memory store behind everything; each node reaches it through a
`Connection` of its own. A call travels, takes effect at one instant (a partitioned store:
one instant for each shard), and its answer travels back. The node may be dead by then, or
frozen, or have been told that the call failed. What takes effect does so on the database's
side: killing a node does not recall what it sent.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from random import Random
from typing import Any, Protocol, TypeVar

from duetime.errors import StoreUnavailable
from duetime.model import Finished, Lease, Timer
from duetime.store import (
    Batch,
    Document,
    DueRead,
    Key,
    Listing,
    ListQuery,
    Page,
    ShardRow,
    Traits,
)
from duetime.stores.memory import MemoryStore
from sim.clock import true_ms
from sim.loop import ProcessLoop, Schedule
from sim.weather import StoreWeather

T = TypeVar("T")


class Witness(Protocol):
    """Who is told what takes effect, at the instant it does."""

    def landed(self, owner: str, batch: Batch, receipt: "Receipt") -> None: ...
    def claimed(self, owner: str, leases: list[Lease], receipt: "Receipt") -> None: ...
    def purged(self, owner: str, namespace: str, before: int) -> None: ...


class Receipt:
    """What the caller of one write was told, and when."""

    __slots__ = ("told", "told_us")

    def __init__(self) -> None:
        self.told_us: int | None = None
        self.told: bool | None = None  # True: it worked. False: it failed. None: nothing yet.


class Database:
    """What all nodes share. `down` refuses every call; `weather` decides the rest. `shared`:
    several nodes meet in it."""

    def __init__(
        self, schedule: Schedule, loop: ProcessLoop, weather: StoreWeather, random: Random
    ) -> None:
        self.schedule = schedule
        self.loop = loop
        self.weather = weather
        self.random = random
        self.down = False
        self.cut: set[str] = set()
        """Machines that cannot reach it."""
        self.shared = False
        self.witness: Witness | None = None
        self.memory = MemoryStore(clock=_TrueClock(schedule))
        at_once(self.memory.open())

    def steal(self, shards: Sequence[int], thief: str) -> None:
        """Somebody claims these and does nothing with them."""
        leases = at_once(self.memory.claim(shards, owner=thief, at=true_ms(self.schedule)))
        assert self.witness is not None
        self.witness.claimed(thief, leases, Receipt())


class Connection:
    """The store as one node has it. Implements the port."""

    def __init__(self, database: Database, loop: ProcessLoop) -> None:
        self._db = database
        self._loop = loop
        self._traits = Traits(
            name="sim",
            writes_in_flight_max=database.weather.writes_in_flight_max,
            shared=database.shared,
        )

    @property
    def traits(self) -> Traits:
        return self._traits

    async def open(self) -> None:
        await self._call(lambda receipt: None)

    async def close(self) -> None:
        pass

    async def now(self) -> int:
        return await self._call(lambda receipt: true_ms(self._db.schedule))

    async def claim(self, shards: Sequence[int], *, owner: str, at: int) -> list[Lease]:
        def effect(receipt: Receipt) -> list[Lease]:
            leases = at_once(self._db.memory.claim(shards, owner=owner, at=at))
            self._witness.claimed(self._loop.name, leases, receipt)
            return leases

        return await self._call(effect, writes=True)

    async def release(self, leases: Sequence[Lease]) -> None:
        await self._call(lambda receipt: at_once(self._db.memory.release(leases)), writes=True)

    async def shards(self) -> list[ShardRow]:
        return await self._call(lambda receipt: at_once(self._db.memory.shards()))

    async def apply(self, batches: Sequence[Batch]) -> frozenset[int]:
        if not self._db.weather.partitioned:
            return await self._call(partial(self._apply, batches), writes=True)
        receipt = Receipt()  # Of all: that a part of it worked, the node is not told.
        calls = [
            self._begin(partial(self._apply, [batch]), writes=True, part_of=receipt)
            for batch in batches
        ]
        lost: set[int] = set()
        failure: StoreUnavailable | None = None
        for call in calls:
            try:
                lost |= await call
            except StoreUnavailable as error:
                failure = error
        receipt.told, receipt.told_us = failure is None, self._db.schedule.now_us
        if failure is not None:
            raise failure
        return frozenset(lost)

    def _apply(self, batches: Sequence[Batch], receipt: Receipt) -> frozenset[int]:
        superseded = at_once(self._db.memory.apply(batches))
        for batch in batches:
            if batch.lease.shard not in superseded:
                self._witness.landed(self._loop.name, batch, receipt)
        return superseded

    async def due(self, reads: Sequence[DueRead]) -> list[Page]:
        return await self._call(lambda receipt: at_once(self._db.memory.due(reads)))

    async def get(self, keys: Sequence[Key]) -> list[Timer | None]:
        return await self._call(lambda receipt: at_once(self._db.memory.get(keys)))

    async def outcomes(self, keys: Sequence[Key]) -> list[Finished | None]:
        return await self._call(lambda receipt: at_once(self._db.memory.outcomes(keys)))

    async def select(self, query: ListQuery) -> Listing:
        return await self._call(lambda receipt: at_once(self._db.memory.select(query)))

    async def purge(self, namespace: str, *, before: int, limit: int) -> int:
        def effect(receipt: Receipt) -> int:
            count = at_once(self._db.memory.purge(namespace, before=before, limit=limit))
            if count:
                self._witness.purged(self._loop.name, namespace, before)
            return count

        return await self._call(effect, writes=True)

    async def documents(self, kind: str) -> list[Document]:
        return await self._call(lambda receipt: at_once(self._db.memory.documents(kind)))

    async def write_document(
        self, kind: str, name: str, body: bytes, *, expected_version: int
    ) -> bool:
        return await self._call(
            lambda receipt: at_once(
                self._db.memory.write_document(kind, name, body, expected_version=expected_version)
            ),
            writes=True,
        )

    async def delete_document(self, kind: str, name: str, *, expected_version: int) -> bool:
        return await self._call(
            lambda receipt: at_once(
                self._db.memory.delete_document(kind, name, expected_version=expected_version)
            ),
            writes=True,
        )

    # -- the way there and back ------------------------------------------------------------

    @property
    def _witness(self) -> Witness:
        assert self._db.witness is not None
        return self._db.witness

    async def _call(self, effect: Callable[[Receipt], T], *, writes: bool = False) -> T:
        return await self._begin(effect, writes=writes)

    def _begin(
        self,
        effect: Callable[[Receipt], T],
        *,
        writes: bool = False,
        part_of: Receipt | None = None,
    ) -> "asyncio.Future[T]":
        """Send the call off; a future of its answer."""
        db, weather, draw = self._db, self._db.weather, self._db.random.random
        loop = self._loop
        answer: asyncio.Future[T] = loop.create_future()
        receipt = part_of or Receipt()
        low, high = weather.latency_ms
        there_s = (low + (high - low) * draw() ** 3) / 1000
        back_s = (low + (high - low) * draw() ** 3) / 1000
        if draw() < (weather.slow_write if writes else weather.slow_read):
            slow_low, slow_high = weather.slow_ms
            slow_s = (slow_low + (slow_high - slow_low) * draw()) / 1000
            # Before it takes effect, or after: what it saw or did is then old news.
            if draw() < 0.5:
                there_s += slow_s
            else:
                back_s += slow_s
        fate = draw()
        fails_before = fate < weather.error_before
        fate -= weather.error_before
        fails_after = 0 <= fate < weather.error_after
        fate -= weather.error_after
        late = writes and 0 <= fate < weather.late

        def tell(value: Any, error: str | None) -> None:
            if part_of is None:
                receipt.told, receipt.told_us = error is None, db.schedule.now_us
            if answer.done():
                return
            if error is None:
                answer.set_result(value)
            else:
                answer.set_exception(StoreUnavailable(error))

        def land() -> None:
            if db.down or machine_of(loop.name) in db.cut:
                db.loop.call_later(back_s, to_node, None, "made to be down")
            elif fails_before:
                db.loop.call_later(back_s, to_node, None, "made to fail before it took effect")
            else:
                value = effect(receipt)
                error = "made to fail although it took effect" if fails_after else None
                if not late:
                    db.loop.call_later(back_s, to_node, value, error)

        def to_node(value: Any, error: str | None) -> None:
            loop.call_soon(tell, value, error)

        if late:
            db.loop.call_later(there_s, to_node, None, "made to take effect later")
            there_s += draw() * 3.0
        db.loop.call_later(there_s, land)
        return answer


def machine_of(process: str) -> str:
    """Processes are named after their machine, and numbered."""
    return process[0]


def at_once(coro: Coroutine[Any, Any, T]) -> T:
    """What a coroutine that never waits answers: one instant, nothing in between."""
    try:
        coro.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    raise AssertionError("the memory store has waited")


class _TrueClock:
    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule

    def now(self) -> int:
        return true_ms(self._schedule)

    def until(self, at: int) -> float:
        return max(0.0, (at - self.now()) / 1000)

    def monotonic(self) -> float:
        return self._schedule.now_us / 1e6
