"""What the surfaces call."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import UNSET
from msgspec.structs import replace

from duetime import rules
from duetime.callback import check_headers
from duetime.cluster.callee import Callee
from duetime.cluster.peers import Cancel, Get, Update
from duetime.cluster.router import Neighbourhood, Router
from duetime.config import Config
from duetime.errors import (
    InvalidInput,
    NamespaceNotFound,
    RequestError,
    ShardMoved,
    UnknownNamespace,
)
from duetime.model import (
    FinalStatus,
    Finished,
    Namespace,
    Reply,
    RetryPolicy,
    Timer,
    View,
)
from duetime.operations import Operations, Owner
from duetime.reads import answer_of
from duetime.requests import Changes, ClusterState, NamespaceChanges, NewTimer, Selected, Selection
from duetime.routing import shard_of, timer_uuid
from duetime.store import Key, ListQuery, Store
from duetime.views import list_cursor, of_executing, of_finished, of_pending, select_executing

__all__ = [
    "Changes",
    "ClusterState",
    "NamespaceChanges",
    "NewTimer",
    "Selected",
    "Selection",
    "Service",
]

DEFAULT_TIMEOUT_S = 30


class Engine(Owner, Neighbourhood, Protocol):
    """What the service needs of the node: its values, its shards, its reads, its neighbours."""

    @property
    def config(self) -> Config: ...
    @property
    def store(self) -> Store: ...

    async def own_shards(self) -> None:
        """Claim whatever shard is in use and not ours yet."""

    def unready(self) -> str | None:
        """Why this node should be sent no requests now; None when it may be."""

    async def drain_shards(self, undo: bool) -> None:
        """Hand all shards over and take no more, until that is undone; begins it and returns.
        `RequestError` if it cannot be."""


class Service:
    """Every operation of Duetime. Raises `RequestError`s, which are the caller's to see."""

    def __init__(self, engine: Engine) -> None:
        self.clock = engine.clock
        self._engine = engine
        self._config = engine.config
        self._namespaces = engine.namespaces
        self._operations = Operations(engine)
        self._router = Router(engine, self._operations)
        if engine.peers is not None:
            engine.peers.on_call = Callee(self._operations, drain=engine.drain_shards)

    # -- timers -----------------------------------------------------------------------

    async def create(self, new: NewTimer) -> View:
        """Store the timer durably, in place of one of the same key, and see it at once."""
        scope = self._namespaces.get(new.namespace)
        if scope is None:
            scope = await self._operations.namespace(new.namespace)
        timer = self._timer(new, scope, self.clock.now())
        try:
            await self._operations.put(self._engine.shards.get(timer.shard), timer)
        except ShardMoved:
            failed = await self._router.put([timer])
            if failed:
                raise failed[0] from None
        return of_pending(timer)

    async def create_many(self, news: Sequence[NewTimer]) -> list[View | RequestError]:
        """An answer for each, in their order; of two with one key the later one wins."""
        now = self.clock.now()
        answers: list[View | RequestError] = []
        timers: list[Timer] = []
        places: list[int] = []
        for index, new in enumerate(news):
            try:
                scope = self._namespaces.get(new.namespace)
                if scope is None:
                    scope = await self._operations.namespace(new.namespace)
                timer = self._timer(new, scope, now)
            except RequestError as error:
                answers.append(error)
            else:
                answers.append(of_pending(timer))
                timers.append(timer)
                places.append(index)
        failed = await self._router.put(timers)
        for index, refused in failed.items():
            answers[places[index]] = refused
        return answers

    async def get(self, namespace: str, id: str) -> View:
        """The timer as it stands, or what became of it while history has it."""
        scope, key = await self._place(namespace, id)
        return await self._router.do(Get(key), scope)

    async def update(self, namespace: str, id: str, changes: Changes, *, reply: Reply) -> View:
        """Change a pending timer; its attempts count anew. `TimerFinished`, `TimerExecuting`."""
        scope, key = await self._place(namespace, id)
        return await self._router.do(Update(key, self._checked(changes), reply), scope)

    async def cancel(self, namespace: str, id: str) -> View:
        """After this returns, the callback is never sent. `TimerFinished`, `TimerExecuting`."""
        scope, key = await self._place(namespace, id)
        return await self._router.do(Cancel(key), scope)

    async def select(self, selection: Selection) -> Selected:
        """One page of a namespace's timers, unfinished ones and history together."""
        scope = await self._operations.namespace(selection.namespace)
        if selection.status == "executing":
            return await self._select_executing(selection)
        executing = await self._router.executing(scope.name)
        finished: tuple[FinalStatus, ...] = ("completed", "failed", "canceled")
        if selection.status is not None:
            finished = tuple(status for status in finished if status == selection.status)
        limit = selection.limit
        listing = await answer_of(
            self._engine.store.select(
                ListQuery(
                    namespace=scope.name,
                    num_shards=scope.num_shards,
                    pending=selection.status in (None, "pending"),
                    finished=finished if scope.history_retention_s else (),
                    finished_after=self.clock.now() - scope.history_retention_s * 1000,
                    without=frozenset(executing) if selection.status == "pending" else frozenset(),
                    id_prefix=selection.id_prefix,
                    execute_from=selection.execute_from,
                    execute_before=selection.execute_before,
                    sort=selection.sort,
                    descending=selection.descending,
                    after=selection.after,
                    offset=selection.offset,
                    limit=limit + 1,
                    total=selection.total,
                )
            )
        )
        views = [
            of_finished(entry)
            if isinstance(entry, Finished)
            else of_executing(entry)
            if entry.uuid in executing
            else of_pending(entry)
            for entry in listing.entries[:limit]
        ]
        more = len(listing.entries) > limit
        continued = list_cursor(listing.entries[limit - 1]) if more else None
        return Selected(views, continued, listing.total)

    async def _select_executing(self, selection: Selection) -> Selected:
        """What executes is known to the owners only, and bounded: chosen in memory."""
        here, elsewhere = await self._router.executing_timers(selection.namespace)
        selected = select_executing(selection, here + elsewhere)
        light = {timer.uuid for timer in elsewhere}
        views = []
        for view in selected.views:
            timer = view.timer
            if timer.uuid in light:
                key = Key(timer.shard, timer.namespace, timer.id)
                whole = await answer_of(self._engine.timers.ask(key))
                if whole is None or whole.execute_at != timer.execute_at:
                    continue  # It has ended meanwhile.
                view = of_executing(whole)
            views.append(view)
        return replace(selected, views=views)

    async def ping(self) -> None:
        """Whether the database answers; `StoreError` says why it does not."""
        await self._engine.store.now()

    # -- namespaces -------------------------------------------------------------------

    async def create_namespace(
        self,
        name: str,
        num_shards: int,
        *,
        history_retention_s: int | None = None,
        min_delay_s: int | None = None,
        retry_policy: RetryPolicy | None = None,
    ) -> Namespace:
        """`NamespaceExists`. What is None has the configured default."""
        rules.check_namespace_name(name)
        rules.check_between(num_shards, 1, rules.NUM_SHARDS_MAX, "num_shards")
        now = self.clock.now()
        namespace = Namespace(
            name=name,
            num_shards=num_shards,
            history_retention_s=self._retention_s(history_retention_s),
            min_delay_s=self._min_delay_s(min_delay_s),
            retry_policy=_checked(retry_policy),
            created_at=now,
            updated_at=now,
        )
        await answer_of(self._namespaces.create(namespace))
        await answer_of(self._engine.own_shards())
        return namespace

    async def get_namespace(self, name: str) -> Namespace:
        """`NamespaceNotFound`."""
        try:
            return await self._operations.namespace(name)
        except UnknownNamespace:
            raise NamespaceNotFound(name) from None

    async def update_namespace(self, name: str, changes: NamespaceChanges) -> Namespace:
        """`NamespaceNotFound`; changing `num_shards` is refused."""
        while True:
            old = await self.get_namespace(name)
            if changes.num_shards is not UNSET and changes.num_shards != old.num_shards:
                raise InvalidInput(
                    f"cannot be changed: it is {old.num_shards} for as long as the namespace lives",
                    "num_shards",
                )
            new = replace(old, updated_at=self.clock.now())
            if changes.history_retention_s is not UNSET:
                new = replace(
                    new, history_retention_s=self._retention_s(changes.history_retention_s)
                )
            if changes.min_delay_s is not UNSET:
                new = replace(new, min_delay_s=self._min_delay_s(changes.min_delay_s))
            if changes.retry_policy is not UNSET:
                new = replace(new, retry_policy=_checked(changes.retry_policy))
            if await answer_of(self._namespaces.replace(new)):
                return new

    async def namespaces(self) -> list[Namespace]:
        """All of them, by name."""
        return self._namespaces.all()

    # -- the cluster --------------------------------------------------------------------

    def unready(self) -> str | None:
        """Why this node should be sent no requests now; None when it may be."""
        return self._engine.unready()

    async def cluster(self) -> ClusterState:
        """Who is there, and who owns what."""
        rows = await answer_of(self._engine.store.shards())
        return ClusterState(self._engine.members(), rows, len(self._namespaces.all()))

    async def drain_node(self, name: str, *, undo: bool) -> None:
        """Have a node hand over its shards and take no more, or undo that. `NodeNotFound`."""
        if name == self._engine.me.name:
            await self._engine.drain_shards(undo)
        else:
            await self._router.drain(name, undo=undo)

    # -- from what is asked for to what is stored ----------------------------------------

    def _timer(self, new: NewTimer, scope: Namespace, now: int) -> Timer:
        config = self._config
        rules.check_id(new.id)
        rules.check_url(new.callback_url)
        if new.headers:
            check_headers(new.headers)
        if new.payload is not None:
            rules.check_json_size(new.payload, config.payload_bytes_max, "payload")
        if new.metadata is not None:
            rules.check_json_size(new.metadata, config.payload_bytes_max, "metadata")
        execute_at = rules.EXECUTE_AT[new.reply](new.execute_at, now, scope.min_delay_s)
        return Timer(
            namespace=new.namespace,
            id=new.id,
            uuid=timer_uuid(new.namespace, new.id),
            shard=shard_of(new.id, scope.num_shards),
            execute_at=execute_at,
            callback_url=new.callback_url,
            created_at=now,
            updated_at=now,
            scheduled_at=execute_at,
            timeout_s=self._timeout_s(new.timeout_s),
            reply=new.reply,
            method=new.method,
            headers=new.headers or None,
            payload=new.payload,
            metadata=new.metadata,
            retry=_checked(new.retry),
        )

    def _checked(self, changes: Changes) -> Changes:
        """The changes, all of them allowed, and nothing left to the defaults of their owner."""
        if changes.callback_url is not UNSET:
            rules.check_url(changes.callback_url)
        if changes.headers is not UNSET and changes.headers:
            check_headers(changes.headers)
        for field, value in (("payload", changes.payload), ("metadata", changes.metadata)):
            if value is not UNSET:
                rules.check_json_size(value, self._config.payload_bytes_max, field)
        if changes.retry is not UNSET:
            _checked(changes.retry)
        if changes.timeout_s is not UNSET:
            changes = replace(changes, timeout_s=self._timeout_s(changes.timeout_s))
        return changes

    def _timeout_s(self, timeout_s: int | None) -> int:
        timeout_s_max = self._config.callback_timeout_s_max
        if timeout_s is None:
            return min(DEFAULT_TIMEOUT_S, timeout_s_max)
        rules.check_timeout(timeout_s, timeout_s_max)
        return timeout_s

    def _retention_s(self, seconds: int | None) -> int:
        if seconds is None:
            return self._config.history_retention_s
        return rules.check_between(seconds, 0, rules.RETENTION_S_MAX, "history_retention_seconds")

    def _min_delay_s(self, seconds: int | None) -> int:
        if seconds is None:
            return self._config.min_delay_s
        return rules.check_between(seconds, 0, rules.MIN_DELAY_S_MAX, "min_delay_seconds")

    async def _place(self, namespace: str, id: str) -> tuple[Namespace, Key]:
        scope = await self._operations.namespace(namespace)
        rules.check_id(id)
        return scope, Key(shard_of(id, scope.num_shards), namespace, id)


def _checked(policy: RetryPolicy | None) -> RetryPolicy | None:
    if policy is not None:
        rules.check_retry(policy)
    return policy
