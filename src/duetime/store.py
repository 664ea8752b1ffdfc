"""The store port: what the engine needs of a database, and nothing more.

The docstrings here are the specification; `duetime.testing.conformance` is the suite that
every store passes. All calls are batches. Instants are milliseconds (see `model`).

Three things rest on a store. *Atomicity*: a shard's batch happens whole or not at all; under
the trait `atomic_rows_max`, a large one's parts do.
*The fence*: a batch under a superseded lease changes nothing, even when the newer claim
lands between the check and the write; so the check locks or writes the shard's row in the
same transaction, a plain read will not do. *Order*: timers come in (execute_at, uuid) order,
uuids as unsigned bytes.

Any call may raise `StoreUnavailable`. After `apply` has raised it, nothing is known about
what took effect; every batch may be sent again, because all of it is idempotent: a put
replaces, removing what is gone is no error, and a finished timer is recorded once for each
(uuid, at).
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from msgspec import Struct, field

from duetime.model import Cursor, FinalStatus, Finished, Lease, Timer


class Traits(Struct, frozen=True, kw_only=True):
    """Facts about a store that the engine and the conformance suite read."""

    name: str
    writes_in_flight_max: int = 1
    """How many `apply` calls, for different shards, are worth running side by side."""
    durable: bool = True
    """Whether what was acknowledged outlives the process."""
    shared: bool = False
    """Several processes may have it open side by side, so that nodes can meet in it."""
    clock_step_ms: int = 1
    """How finely `now` counts: the database's clock lies at most half of it away."""
    payload_bytes_max: int | None = None
    """What a payload may have, and metadata as much again. None: more than is ever allowed."""
    atomic_rows_max: int | None = None
    """How many rows of one shard's batch are written at once. A larger batch, or one of heavy
    payloads, is written in parts, one after the other: each atomic, under the fence, and with
    all that concerns a timer. If one fails, or the lease is lost before it, `apply` raises
    `StoreUnavailable`, and the parts before it stay. None: every batch is one."""
    shard_bytes_max: int | None = None
    """What the unfinished timers of one shard may have in all. None: as much as there is room."""
    lists_lag: bool = False
    """A list may lack what has ended in the last moments. `outcomes` never does."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why these of the above are what they are, by name. docs/stores.md tells them."""


class Key(NamedTuple):
    """What finds one timer. The shard is the timer's own, as `routing` computes it."""

    shard: int
    namespace: str
    id: str


class Batch(Struct, gc=False):
    """What changes in one shard, under one lease. No two entries concern the same timer,
    except that a removed one may also be recorded in `finished`."""

    lease: Lease
    puts: list[Timer]
    """Written whole. Each replaces the row of the same (namespace, id), wherever that stood."""
    removes: list[Timer]
    """Removed by cursor: a row of the same key at another execute_at stays. Absent is fine."""
    finished: list[Finished]
    """Recorded in history, in the same atomic write. Read back, its `attempts` and
    `last_error` have replaced those of its timer."""


class DueRead(NamedTuple):
    """Ask for a shard's timers with cursor > `after` and execute_at <= `until`."""

    shard: int
    after: Cursor
    until: int
    limit: int


class Page(NamedTuple):
    """Timers in cursor order. Without `more`, there is none left up to the read's `until`.

    With `more`, the page ended at its limit, or sooner because it grew heavy; it holds at
    least one timer, and the next page begins after its last one.
    """

    timers: list[Timer]
    more: bool


class ListCursor(NamedTuple):
    """A place in a list ordered by execute_at. `finished_at` is 0 for an unfinished timer."""

    execute_at: int
    uuid: bytes
    finished_at: int


class ListQuery(Struct, frozen=True, kw_only=True):
    """Which of a namespace's timers to list, unfinished ones and history in one order.

    Order: by `sort`, then uuid, then finished_at (0 where unfinished); all three turn round
    with `descending`. `after` continues a list sorted by execute_at, ascending.
    """

    namespace: str
    num_shards: int
    pending: bool = True
    """Whether unfinished timers are wanted."""
    finished: tuple[FinalStatus, ...] = ("completed", "failed", "canceled")
    """Which finished ones are wanted."""
    finished_after: int = 0
    """History from before this instant is as good as purged: it is not listed (`at` > this)."""
    without: frozenset[bytes] = frozenset()
    """Uuids of unfinished timers to leave out."""
    id_prefix: str = ""
    execute_from: int | None = None
    """Inclusive."""
    execute_before: int | None = None
    """Exclusive."""
    sort: Literal["execute_at", "created_at"] = "execute_at"
    descending: bool = False
    after: ListCursor | None = None
    offset: int = 0
    limit: int = 50
    total: bool = False
    """Whether to count all that match, whatever `after`, `offset` and `limit` are."""


class Listing(NamedTuple):
    """A page of a list; `total` only where the query asked for it."""

    entries: list[Timer | Finished]
    total: int | None


class Document(NamedTuple):
    """A small JSON value under (kind, name): a namespace, a node, a key."""

    kind: str
    name: str
    version: int
    body: bytes


class ShardRow(NamedTuple):
    """What the store knows of a shard that was ever claimed. No owner: it was released."""

    shard: int
    version: int
    owner: str | None
    claimed_at: int


class Store(Protocol):
    """One database. Every method but `open` needs it open; all are safe to run side by side."""

    @property
    def traits(self) -> Traits: ...

    async def open(self) -> None:
        """Connect and bring the schema up to date. `SchemaTooNew` if it is ahead of us."""

    async def close(self) -> None:
        """Let go of everything. Calls under way are finished first. Closing twice is fine."""

    async def now(self) -> int:
        """The database's clock. Doubles as the check that it answers."""

    async def claim(self, shards: Sequence[int], *, owner: str, at: int) -> list[Lease]:
        """Take each shard over, whoever holds it, in the order given.

        Its version goes up by one (from 0 where it was never claimed). Of claims that race,
        each gets a version of its own and the highest one is the owner.
        """

    async def release(self, leases: Sequence[Lease]) -> None:
        """Clear the owner, keep the version. A superseded lease is passed over in silence."""

    async def shards(self) -> list[ShardRow]:
        """Every shard ever claimed, by number."""

    async def apply(self, batches: Sequence[Batch]) -> frozenset[int]:
        """Write each shard's batch atomically, fenced by its lease; durable on return.

        Answers the shards whose lease was superseded: of their batches nothing took effect,
        all others took effect. No two batches concern the same shard.
        """

    async def due(self, reads: Sequence[DueRead]) -> list[Page]:
        """A page for each read, in their order. Timers only, never a shard's own row."""

    async def get(self, keys: Sequence[Key]) -> list[Timer | None]:
        """The unfinished timer of each key, in their order."""

    async def outcomes(self, keys: Sequence[Key]) -> list[Finished | None]:
        """The newest history entry of each key, in their order."""

    async def select(self, query: ListQuery) -> Listing:
        """One page of a list that shows unfinished timers and history together."""

    async def purge(self, namespace: str, *, before: int, limit: int) -> int:
        """Delete up to `limit` history entries with `at` <= `before`; answers how many."""

    async def documents(self, kind: str) -> list[Document]:
        """All documents of a kind, by name."""

    async def write_document(
        self, kind: str, name: str, body: bytes, *, expected_version: int
    ) -> bool:
        """Write if its version is the expected one (0: it must not exist); version goes up
        by one. False if another writer was first."""

    async def delete_document(self, kind: str, name: str, *, expected_version: int) -> bool:
        """Delete if its version is the expected one. False if it is another, or gone."""
