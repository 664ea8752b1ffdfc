"""A store that fails on demand, for proving what the engine does about it. Shipped."""

from collections import deque
from collections.abc import Sequence
from typing import Literal

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
    Store,
    Traits,
)

Fault = Literal["before", "after"]


class FaultyStore:
    """Passes everything on to `inner`, unless told to fail.

    `faults` are used up by the next writes, one each: "before" fails a write that then has
    not happened, "after" one that has. While `down`, every call fails before it does anything.
    """

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.faults: deque[Fault] = deque()
        self.down = False
        self.applied = 0

    @property
    def traits(self) -> Traits:
        return self.inner.traits

    async def open(self) -> None:
        await self.inner.open()

    async def close(self) -> None:
        await self.inner.close()

    async def now(self) -> int:
        self._check()
        return await self.inner.now()

    async def claim(self, shards: Sequence[int], *, owner: str, at: int) -> list[Lease]:
        self._check()
        return await self.inner.claim(shards, owner=owner, at=at)

    async def release(self, leases: Sequence[Lease]) -> None:
        self._check()
        await self.inner.release(leases)

    async def shards(self) -> list[ShardRow]:
        self._check()
        return await self.inner.shards()

    async def apply(self, batches: Sequence[Batch]) -> frozenset[int]:
        self._check()
        fault = self.faults.popleft() if self.faults else None
        if fault == "before":
            raise StoreUnavailable("made to fail before the write")
        superseded = await self.inner.apply(batches)
        self.applied += 1
        if fault == "after":
            raise StoreUnavailable("made to fail after the write")
        return superseded

    async def due(self, reads: Sequence[DueRead]) -> list[Page]:
        self._check()
        return await self.inner.due(reads)

    async def get(self, keys: Sequence[Key]) -> list[Timer | None]:
        self._check()
        return await self.inner.get(keys)

    async def outcomes(self, keys: Sequence[Key]) -> list[Finished | None]:
        self._check()
        return await self.inner.outcomes(keys)

    async def select(self, query: ListQuery) -> Listing:
        self._check()
        return await self.inner.select(query)

    async def purge(self, namespace: str, *, before: int, limit: int) -> int:
        self._check()
        return await self.inner.purge(namespace, before=before, limit=limit)

    async def documents(self, kind: str) -> list[Document]:
        self._check()
        return await self.inner.documents(kind)

    async def write_document(
        self, kind: str, name: str, body: bytes, *, expected_version: int
    ) -> bool:
        self._check()
        return await self.inner.write_document(kind, name, body, expected_version=expected_version)

    async def delete_document(self, kind: str, name: str, *, expected_version: int) -> bool:
        self._check()
        return await self.inner.delete_document(kind, name, expected_version=expected_version)

    def _check(self) -> None:
        if self.down:
            raise StoreUnavailable("made to be down")
