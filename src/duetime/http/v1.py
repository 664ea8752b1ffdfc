"""The V1 surface: everything Duetime can do, as POST operations on keys the caller chooses."""

import base64
import struct
from collections.abc import Sequence

from msgspec import UNSET, Raw, structs

from duetime import model, rules
from duetime.errors import (
    InvalidInput,
    NamespaceExists,
    NamespaceNotFound,
    NodeNotFound,
    PayloadTooLarge,
    RequestError,
    StoreError,
    TimerExecuting,
    TimerFinished,
    TimerNotFound,
    Unavailable,
    UnknownNamespace,
)
from duetime.http import v1_types as v1
from duetime.http.codec import Answer, Body, encode, instant, kept, kept_change
from duetime.http.problems import (
    BodyTooLarge,
    Headers,
    HeadTooLarge,
    HeadTooSlow,
    MethodNotAllowed,
    Path,
    Refusal,
    RouteNotFound,
    Unauthorized,
    UnsupportedMediaType,
    look_up,
    refusal,
    shown,
)
from duetime.http.routes import Request, Route
from duetime.instants import format_instant
from duetime.model import INSTANT_MAX, RetryPolicy, View
from duetime.service import Changes, ClusterState, NamespaceChanges, NewTimer, Selection, Service
from duetime.store import ListCursor

LIMIT_DEFAULT = 50
LIMIT_MAX = 200

CODES: dict[type[Exception], tuple[int, str]] = {
    Refusal: (400, "INVALID_INPUT"),
    InvalidInput: (400, "INVALID_INPUT"),
    UnknownNamespace: (400, "UNKNOWN_NAMESPACE"),
    Unauthorized: (401, "UNAUTHORIZED"),
    TimerNotFound: (404, "TIMER_NOT_FOUND"),
    TimerFinished: (404, "TIMER_NOT_FOUND"),
    NamespaceNotFound: (404, "NAMESPACE_NOT_FOUND"),
    NodeNotFound: (404, "NODE_NOT_FOUND"),
    RouteNotFound: (404, "NOT_FOUND"),
    MethodNotAllowed: (405, "METHOD_NOT_ALLOWED"),
    HeadTooSlow: (408, "INVALID_INPUT"),
    TimerExecuting: (409, "TIMER_EXECUTING"),
    NamespaceExists: (409, "NAMESPACE_EXISTS"),
    PayloadTooLarge: (413, "PAYLOAD_TOO_LARGE"),
    BodyTooLarge: (413, "PAYLOAD_TOO_LARGE"),
    UnsupportedMediaType: (415, "UNSUPPORTED_MEDIA_TYPE"),
    HeadTooLarge: (431, "INVALID_INPUT"),
    Exception: (500, "INTERNAL_ERROR"),
    Unavailable: (503, "UNAVAILABLE"),
    StoreError: (503, "UNAVAILABLE"),
}


class V1:
    """Speaks V1 with a service."""

    def __init__(self, service: Service, *, payload_bytes_max: int) -> None:
        self._service = service
        self._payload_bytes_max = payload_bytes_max

    def problem(self, error: Exception, route: Route | None) -> Answer:
        status, code = look_up(CODES, error)
        message, headers, details = _told(error, route)
        now = format_instant(self._service.clock.now())
        return Answer(status, encode(v1.Error(code, message, details, now)), headers)

    async def create_timer(self, request: Request) -> Answer:
        asked = _CREATE.read(request.body)
        return Answer(200, encode(_timer(await self._service.create(self._new(asked)))))

    async def get_timer(self, request: Request) -> Answer:
        asked = _SELECT.read(request.body)
        view = await self._service.get(asked.namespace, asked.timer_id)
        return Answer(200, encode(_timer(view)))

    async def update_timer(self, request: Request) -> Answer:
        asked = _UPDATE.read(request.body)
        bytes_max = self._payload_bytes_max
        changes = Changes(
            execute_at=UNSET
            if asked.execute_at is UNSET
            else instant(asked.execute_at, "execute_at"),
            callback_url=asked.callback_url,
            headers=asked.callback_headers,
            payload=kept_change(asked.payload, "payload", bytes_max=bytes_max, object_only=True),
            metadata=kept_change(asked.metadata, "metadata", bytes_max=bytes_max),
            retry=UNSET if asked.retry_policy is UNSET else _policy(asked.retry_policy),
            timeout_s=asked.callback_timeout_seconds,
        )
        view = await self._service.update(asked.namespace, asked.timer_id, changes, reply="v1")
        return Answer(200, encode(_timer(view)))

    async def delete_timer(self, request: Request) -> Answer:
        asked = _SELECT.read(request.body)
        await self._service.cancel(asked.namespace, asked.timer_id)
        return Answer(204, b"")

    async def list_timers(self, request: Request) -> Answer:
        asked = _LIST.read(request.body)
        limit = LIMIT_DEFAULT if asked.limit is None else asked.limit
        selected = await self._service.select(
            Selection(
                namespace=asked.namespace,
                status=asked.status,
                id_prefix=asked.id_prefix or "",
                execute_from=_optional_instant(asked.execute_after, "execute_after"),
                execute_before=_optional_instant(asked.execute_before, "execute_before"),
                after=None if asked.cursor is None else _read_cursor(asked.cursor),
                limit=max(1, min(limit, LIMIT_MAX)),
            )
        )
        cursor = None if selected.next is None else _write_cursor(selected.next)
        page = v1.TimerPage([_timer(view) for view in selected.views], cursor)
        return Answer(200, encode(page))

    async def create_batch(self, request: Request) -> Answer:
        news = [self._new_or_refusal(asked) for asked in _read_batch(request.body)]
        created = iter(
            await self._service.create_many([new for new in news if isinstance(new, NewTimer)])
        )
        answers = [next(created) if isinstance(new, NewTimer) else new for new in news]
        return Answer(200, encode(v1.BatchResults([_result(answer) for answer in answers])))

    async def create_namespace(self, request: Request) -> Answer:
        asked = _CREATE_NAMESPACE.read(request.body)
        namespace = await self._service.create_namespace(
            asked.name,
            asked.num_shards,
            history_retention_s=asked.history_retention_seconds,
            min_delay_s=asked.min_delay_seconds,
            retry_policy=_policy(asked.retry_policy),
        )
        return Answer(200, encode(_namespace(namespace)))

    async def get_namespace(self, request: Request) -> Answer:
        asked = _SELECT_NAMESPACE.read(request.body)
        return Answer(200, encode(_namespace(await self._service.get_namespace(asked.name))))

    async def update_namespace(self, request: Request) -> Answer:
        asked = _UPDATE_NAMESPACE.read(request.body)
        changes = NamespaceChanges(
            num_shards=asked.num_shards,
            history_retention_s=asked.history_retention_seconds,
            min_delay_s=asked.min_delay_seconds,
            retry_policy=UNSET if asked.retry_policy is UNSET else _policy(asked.retry_policy),
        )
        namespace = await self._service.update_namespace(asked.name, changes)
        return Answer(200, encode(_namespace(namespace)))

    async def list_namespaces(self, request: Request) -> Answer:
        if request.body:
            _NO_FIELDS.read(request.body)
        found = await self._service.namespaces()
        return Answer(200, encode(v1.Namespaces([_namespace(one) for one in found])))

    async def show_cluster(self, request: Request) -> Answer:
        return Answer(200, encode(_cluster(await self._service.cluster())))

    async def drain_node(self, request: Request) -> Answer:
        asked = _DRAIN.read(request.body)
        await self._service.drain_node(asked.node, undo=asked.undo)
        return Answer(200, encode(v1.Drained(asked.node, not asked.undo)))

    def _new(self, asked: v1.CreateTimerRequest) -> NewTimer:
        bytes_max = self._payload_bytes_max
        return NewTimer(
            namespace=asked.namespace,
            id=asked.id,
            execute_at=instant(asked.execute_at, "execute_at"),
            callback_url=asked.callback_url,
            reply="v1",
            headers=asked.callback_headers,
            payload=kept(asked.payload, "payload", bytes_max=bytes_max, object_only=True),
            metadata=kept(asked.metadata, "metadata", bytes_max=bytes_max),
            retry=_policy(asked.retry_policy),
            timeout_s=asked.callback_timeout_seconds,
        )

    def _new_or_refusal(
        self, asked: v1.CreateTimerRequest | RequestError
    ) -> NewTimer | RequestError:
        if isinstance(asked, RequestError):
            return asked
        try:
            return self._new(asked)
        except RequestError as error:
            return error


_CREATE = Body(v1.CreateTimerRequest)
_SELECT = Body(v1.TimerSelection)
_UPDATE = Body(v1.UpdateTimerRequest)
_LIST = Body(v1.ListTimersRequest)
_BATCH = Body(v1.BatchRequest)
_LOOSE_BATCH = Body(v1.LooseBatch)
_BATCH_ITEMS = Body(v1.BATCH_ITEMS)
_CREATE_NAMESPACE = Body(v1.CreateNamespaceRequest)
_SELECT_NAMESPACE = Body(v1.NamespaceSelection)
_UPDATE_NAMESPACE = Body(v1.UpdateNamespaceRequest)
_NO_FIELDS = Body(v1.NoFields)
_DRAIN = Body(v1.DrainRequest)
_NULL = Raw(b"null")
_CURSOR = struct.Struct(">Q16sQ")


def _read_batch(body: bytes) -> Sequence[v1.CreateTimerRequest | RequestError]:
    """The batch's items; those of a wrong shape as what is wrong with them."""
    wrong_number = Refusal(f"must be a list of 1 to {v1.BATCH_TIMERS_MAX} timers", ("timers",))
    try:
        items: Sequence[v1.CreateTimerRequest | RequestError] = _BATCH.read(body).timers
    except Refusal:
        # One pass over all is fastest, but it stops at the first bad item: now one by one.
        loose = _LOOSE_BATCH.read(body)
        try:
            raws = structs.astuple(_BATCH_ITEMS.read_part(loose.timers))
        except Refusal:
            raise wrong_number from None
        items = [_read_item(raw) for raw in raws if raw is not v1.NO_ITEM]
    if not 1 <= len(items) <= v1.BATCH_TIMERS_MAX:
        raise wrong_number
    return items


def _read_item(raw: Raw) -> v1.CreateTimerRequest | RequestError:
    try:
        return _CREATE.read_part(raw)
    except Refusal as refused:
        return refused


def _result(answer: View | RequestError) -> v1.BatchResult:
    if isinstance(answer, View):
        return v1.BatchResult(timer=_timer(answer))
    message, _, details = _told(answer, None)
    _, code = look_up(CODES, answer)
    return v1.BatchResult(error=code, message=message, details=details)


def _told(error: Exception, route: Route | None) -> tuple[str, Headers, v1.ErrorDetails | None]:
    if isinstance(error, InvalidInput):
        error = refusal(error, lambda field: _wire_path(field, route))
    message, headers = shown(error)
    pointer = error.pointer if isinstance(error, Refusal) else None
    return message, headers, None if pointer is None else v1.ErrorDetails(pointer)


def _wire_path(field: str, route: Route | None) -> Path:
    """The core's name of a field as this surface calls it."""
    head, below, rest = field.partition("/")
    if head == "id" and route is not None:
        return (route.id_field,)
    if not below:
        return (_camel(head),)
    return (_camel(head), _camel(rest) if head == "retry_policy" else rest)


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)


def _policy(given: v1.RetryPolicyInput | None) -> RetryPolicy | None:
    """The policy in its newer names."""
    if given is None:
        return None
    attempts, duration = given.max_attempts, given.max_attempts_duration
    if given.max_retries is not None:
        if attempts is not None:
            raise Refusal("cannot stand beside maxAttempts", ("retryPolicy", "maxRetries"))
        if not 0 <= given.max_retries < rules.ATTEMPTS_MAX:
            problem = f"must lie between 0 and {rules.ATTEMPTS_MAX - 1}"
            raise Refusal(problem, ("retryPolicy", "maxRetries"))
        attempts = given.max_retries + 1
    if given.max_retry_attempts_duration is not None:
        path = ("retryPolicy", "maxRetryAttemptsDuration")
        if duration is not None:
            raise Refusal("cannot stand beside maxAttemptsDuration", path)
        duration = given.max_retry_attempts_duration
        try:
            rules.check_retry(RetryPolicy(max_attempts_duration=duration))
        except InvalidInput as error:
            raise Refusal(error.problem, path) from None
    return RetryPolicy(
        max_attempts=attempts,
        max_attempts_duration=duration,
        initial_interval=given.initial_interval,
        backoff_multiplier=given.backoff_multiplier,
        max_interval=given.max_interval,
    )


def _optional_instant(text: str | None, field: str) -> int | None:
    return None if text is None else instant(text, field)


def _write_cursor(cursor: ListCursor) -> str:
    return base64.urlsafe_b64encode(_CURSOR.pack(*cursor)).decode()


def _read_cursor(text: str) -> ListCursor:
    try:
        cursor = ListCursor(*_CURSOR.unpack(base64.b64decode(text, altchars=b"-_", validate=True)))
    except (ValueError, struct.error):  # Not ASCII, not base64, or not of our length.
        cursor = None
    if cursor is None or max(cursor.execute_at, cursor.finished_at) > INSTANT_MAX:
        raise Refusal("is not a cursor that a list has answered", ("cursor",))
    return cursor


def _timer(view: View) -> v1.Timer:
    timer = view.timer
    created = format_instant(timer.created_at)
    unchanged = view.updated_at == timer.created_at
    return v1.Timer(
        timer.id,
        timer.namespace,
        format_instant(timer.execute_at),
        timer.callback_url,
        timer.method,
        timer.headers,
        timer.timeout_s,
        _NULL if timer.payload is None else Raw(timer.payload),
        _NULL if timer.metadata is None else Raw(timer.metadata),
        timer.retry,
        view.status,
        view.attempts,
        view.last_error,
        created,
        created if unchanged else format_instant(view.updated_at),
        None if view.executed_at is None else format_instant(view.executed_at),
    )


def _namespace(namespace: model.Namespace) -> v1.Namespace:
    return v1.Namespace(
        namespace.name,
        namespace.num_shards,
        namespace.history_retention_s,
        namespace.min_delay_s,
        namespace.retry_policy,
        format_instant(namespace.created_at),
        format_instant(namespace.updated_at),
    )


def _cluster(state: ClusterState) -> v1.Cluster:
    names = {node.owner: node.name for node in state.nodes}
    return v1.Cluster(
        [
            v1.ClusterNode(
                node.name,
                node.address,
                node.version,
                format_instant(node.started_at),
                node.shards,
                node.in_flight,
                node.backlog,
                node.skew_ms,
                node.draining,
            )
            for node in state.nodes
        ],
        [
            # Of one that is gone, what it claimed shards as is all that is left.
            v1.ClusterShard(row.shard, row.version, names.get(row.owner or "", row.owner))
            for row in state.shards
        ],
        state.namespaces,
    )
