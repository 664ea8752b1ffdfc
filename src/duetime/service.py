"""What the surfaces call."""

from collections.abc import Sequence

from msgspec import UNSET, Struct, UnsetType

from duetime.clock import Clock
from duetime.errors import RequestError
from duetime.model import Method, Namespace, Reply, RetryPolicy, Status, View
from duetime.store import ListCursor


class NewTimer(Struct, frozen=True, gc=False, kw_only=True):
    """A timer as asked for, its fields of the right type but their values not yet checked.

    `reply` names the surface: it decides which instants are allowed, what the callback is
    sent and how its answer is read.
    """

    namespace: str
    id: str
    execute_at: int
    callback_url: str
    reply: Reply
    method: Method = "POST"
    headers: dict[str, str] | None = None
    payload: bytes | None = None
    metadata: bytes | None = None
    retry: RetryPolicy | None = None
    timeout_s: int | None = None


class Changes(Struct, frozen=True, kw_only=True):
    """What to change of a timer. UNSET leaves a field as it is, None clears it."""

    execute_at: int | UnsetType = UNSET
    callback_url: str | UnsetType = UNSET
    method: Method | UnsetType = UNSET
    headers: dict[str, str] | None | UnsetType = UNSET
    payload: bytes | None | UnsetType = UNSET
    metadata: bytes | None | UnsetType = UNSET
    retry: RetryPolicy | None | UnsetType = UNSET
    timeout_s: int | None | UnsetType = UNSET


class Selection(Struct, frozen=True, kw_only=True):
    """Which timers of a namespace to list. `execute_from` is inclusive, `execute_before` not."""

    namespace: str
    status: Status | None = None
    id_prefix: str = ""
    execute_from: int | None = None
    execute_before: int | None = None
    sort: str = "execute_at"
    descending: bool = False
    after: ListCursor | None = None
    offset: int = 0
    limit: int = 50
    total: bool = False


class Selected(Struct, frozen=True):
    """One page of a list. `next` continues it, None at its end; `total` where asked for."""

    views: list[View]
    next: ListCursor | None
    total: int | None


class NamespaceChanges(Struct, frozen=True, kw_only=True):
    """What to change of a namespace. UNSET leaves a field as it is, None clears it."""

    num_shards: int | UnsetType = UNSET
    history_retention_s: int | None | UnsetType = UNSET
    min_delay_s: int | None | UnsetType = UNSET
    retry_policy: RetryPolicy | None | UnsetType = UNSET


class Service:
    """Every operation of Duetime. Raises `RequestError`s, which are the caller's to see."""

    clock: Clock

    async def create(self, new: NewTimer) -> View:
        """Store the timer durably, in place of one of the same key, and see it at once."""
        raise NotImplementedError

    async def create_many(self, news: Sequence[NewTimer]) -> list[View | RequestError]:
        """An answer for each, in their order; of two with one key the later one wins."""
        raise NotImplementedError

    async def get(self, namespace: str, id: str) -> View:
        raise NotImplementedError

    async def update(self, namespace: str, id: str, changes: Changes, *, reply: Reply) -> View:
        """Change a pending timer; its attempts count anew. `TimerFinished`, `TimerExecuting`."""
        raise NotImplementedError

    async def cancel(self, namespace: str, id: str) -> View:
        """After this returns, the callback is never sent. `TimerFinished`, `TimerExecuting`."""
        raise NotImplementedError

    async def select(self, selection: Selection) -> Selected:
        raise NotImplementedError

    async def create_namespace(
        self,
        name: str,
        num_shards: int,
        *,
        history_retention_s: int | None = None,
        min_delay_s: int | None = None,
        retry_policy: RetryPolicy | None = None,
    ) -> Namespace:
        raise NotImplementedError

    async def get_namespace(self, name: str) -> Namespace:
        raise NotImplementedError

    async def update_namespace(self, name: str, changes: NamespaceChanges) -> Namespace:
        raise NotImplementedError

    async def namespaces(self) -> list[Namespace]:
        """All of them, by name."""
        raise NotImplementedError

    async def ping(self) -> None:
        """Whether the database answers; `StoreError` says why it does not."""
        raise NotImplementedError
