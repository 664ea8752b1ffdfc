"""What the surfaces ask of the service, and the pages it answers."""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from duetime.cluster.membership import Member
from duetime.model import Method, Reply, RetryPolicy, Status, View
from duetime.store import ListCursor, ShardRow


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
    sort: Literal["execute_at", "created_at"] = "execute_at"
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


class ClusterState(Struct, frozen=True):
    """The nodes that are alive, and who owns what as the store has it."""

    nodes: list[Member]
    shards: list[ShardRow]
    namespaces: int
