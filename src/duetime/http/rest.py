"""The REST surface: /timers and /timers/{id} on the namespace `default`, and health."""

import asyncio
import logging
import re
import uuid
from typing import Any, Literal, TypeVar
from urllib.parse import parse_qsl

from msgspec import UNSET, Raw, structs

from duetime.errors import (
    InvalidInput,
    StoreError,
    TimerExecuting,
    TimerFinished,
    TimerNotFound,
    Unavailable,
)
from duetime.http import rest_types as rest
from duetime.http.codec import Answer, Body, encode, instant, kept, kept_change
from duetime.http.problems import (
    BodyTooLarge,
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
from duetime.model import DEFAULT_NAMESPACE, STATUSES, RetryPolicy, View
from duetime.service import Changes, NewTimer, Selection, Service

log = logging.getLogger(__name__)

LIMIT_DEFAULT = 50
LIMIT_MAX = 200
OFFSET_MAX = 2**53 - 1  # What every JSON reader can hold, and every database can skip.
HEALTH_TIMEOUT_S = 5
DATABASE_LOST = "database connection failed"
SORTS: tuple[Literal["created_at", "execute_at"], ...] = ("created_at", "execute_at")

CODES: dict[type[Exception], tuple[int, int]] = {
    Refusal: (400, 2),
    InvalidInput: (400, 2),
    TimerExecuting: (400, 2),
    TimerFinished: (400, 2),
    Unauthorized: (401, 4),
    TimerNotFound: (404, 3),
    RouteNotFound: (404, 3),
    MethodNotAllowed: (405, 2),
    HeadTooSlow: (408, 2),
    BodyTooLarge: (413, 2),
    UnsupportedMediaType: (415, 2),
    HeadTooLarge: (431, 2),
    Exception: (500, 1),
    Unavailable: (503, 1),
    StoreError: (503, 1),
}


class Rest:
    """Speaks REST with a service."""

    def __init__(self, service: Service, *, payload_bytes_max: int) -> None:
        self._service = service
        self._payload_bytes_max = payload_bytes_max

    def problem(self, error: Exception, route: Route | None) -> Answer:
        status, code = look_up(CODES, error)
        if isinstance(error, InvalidInput):
            error = refusal(error, _wire_path)
        message, headers = shown(error)
        if isinstance(error, TimerExecuting | TimerFinished):
            verb = "change" if route is None else route.verb
            standing = error.status if isinstance(error, TimerFinished) else "executing"
            message = f"cannot {verb} timer with status '{standing}'"
        return Answer(status, encode(rest.Envelope(code, message, None)), headers)

    async def create_timer(self, request: Request) -> Answer:
        asked = _CREATE.read(request.body)
        bytes_max = self._payload_bytes_max
        view = await self._service.create(
            NewTimer(
                namespace=DEFAULT_NAMESPACE,
                id=str(uuid.uuid4()),
                execute_at=instant(asked.execute_at, "execute_at"),
                callback_url=asked.callback_url,
                reply="rest",
                method=asked.callback_method or "POST",
                headers=asked.callback_headers,
                payload=kept(asked.callback_payload, "payload", bytes_max=bytes_max),
                metadata=kept(asked.metadata, "metadata", bytes_max=bytes_max),
                retry=_policy(asked.retry_policy),
            )
        )
        return _success(201, "timer created successfully", _summary(view))

    async def get_timer(self, request: Request) -> Answer:
        view = await self._service.get(DEFAULT_NAMESPACE, _timer_id(request))
        return _success(200, "success", _details(view))

    async def list_timers(self, request: Request) -> Answer:
        asked = _parameters(request.query)
        limit = max(1, min(_whole(asked, "limit", LIMIT_DEFAULT), LIMIT_MAX))
        offset = max(0, min(_whole(asked, "offset", 0), OFFSET_MAX))
        selected = await self._service.select(
            Selection(
                namespace=DEFAULT_NAMESPACE,
                status=_one_of(asked, "status", STATUSES),
                sort=_one_of(asked, "sort", SORTS) or "created_at",
                descending=_one_of(asked, "order", ("asc", "desc")) != "asc",
                offset=offset,
                limit=limit,
                total=True,
            )
        )
        assert selected.total is not None
        timers = [_summary(view) for view in selected.views]
        return _success(200, "success", rest.TimerList(timers, selected.total, limit, offset))

    async def update_timer(self, request: Request) -> Answer:
        key = _timer_id(request)
        asked = _UPDATE.read(request.body)
        bytes_max = self._payload_bytes_max
        changes = Changes(
            execute_at=UNSET
            if asked.execute_at is UNSET
            else instant(asked.execute_at, "execute_at"),
            callback_url=asked.callback_url,
            method=UNSET if asked.callback_method is UNSET else asked.callback_method or "POST",
            headers=asked.callback_headers,
            payload=kept_change(asked.callback_payload, "payload", bytes_max=bytes_max),
            metadata=kept_change(asked.metadata, "metadata", bytes_max=bytes_max),
            retry=UNSET if asked.retry_policy is UNSET else _policy(asked.retry_policy),
        )
        view = await self._service.update(DEFAULT_NAMESPACE, key, changes, reply="rest")
        return _success(200, "timer updated successfully", _updated(view))

    async def cancel_timer(self, request: Request) -> Answer:
        key = _timer_id(request)
        try:
            await self._service.cancel(DEFAULT_NAMESPACE, key)
        except TimerFinished as finished:
            if finished.status != "canceled":
                raise
        return _success(200, "timer canceled successfully", rest.CanceledTimer(key, "canceled"))

    async def health(self, request: Request) -> Answer:
        try:
            async with asyncio.timeout(HEALTH_TIMEOUT_S):
                await self._service.ping()
        except Exception as error:  # Whatever it is: the database did not answer.
            log.warning("health check failed", extra={"reason": str(error) or type(error).__name__})
            status, code, message = 500, 1, DATABASE_LOST
            health = rest.Health("degraded", "disconnected", self._now())
        else:
            status, code, message = 200, 0, "healthy"
            health = rest.Health("up", "connected", self._now())
        return Answer(status, encode(rest.Envelope(code, message, health)))

    async def ready(self, request: Request) -> Answer:
        reason = self._service.unready()
        if reason is None:
            return _success(200, "ready", rest.Readiness(True))
        body = encode(rest.Envelope(1, reason, rest.Readiness(False)))
        return Answer(503, body, ((b"retry-after", b"1"),))

    def _now(self) -> str:
        return format_instant(self._service.clock.now())


_CREATE = Body(rest.NewTimer)
_UPDATE = Body(rest.TimerChanges)
_NULL = Raw(b"null")
_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_WHOLE = re.compile(r"([+-]?)0*([0-9]+)")
_PARAMETERS = frozenset({"status", "limit", "offset", "sort", "order"})
_PARAMETERS_MAX = 100

C = TypeVar("C", bound=str)


def _success(status: int, message: str, data: Any) -> Answer:
    return Answer(status, encode(rest.Envelope(0, message, data)))


def _summary(view: View) -> rest.TimerSummary:
    timer = view.timer
    return rest.TimerSummary(
        timer.id,
        format_instant(timer.created_at),
        format_instant(timer.execute_at),
        timer.callback_url,
        timer.method,
        view.status,
        _executed(view),
    )


def _updated(view: View) -> rest.UpdatedTimer:
    timer = view.timer
    return rest.UpdatedTimer(
        timer.id,
        format_instant(timer.created_at),
        format_instant(view.updated_at),
        format_instant(timer.execute_at),
        timer.callback_url,
        timer.method,
        view.status,
        _executed(view),
    )


def _details(view: View) -> rest.TimerDetails:
    timer = view.timer
    return rest.TimerDetails(
        timer.id,
        format_instant(timer.created_at),
        format_instant(view.updated_at),
        format_instant(timer.execute_at),
        timer.callback_url,
        timer.method,
        timer.headers,
        _NULL if timer.payload is None else Raw(timer.payload),
        view.status,
        view.last_error,
        _executed(view),
        _NULL if timer.metadata is None else Raw(timer.metadata),
        UNSET if timer.retry is None else rest.RestRetryPolicy(**structs.asdict(timer.retry)),
    )


def _executed(view: View) -> str | None:
    return None if view.executed_at is None else format_instant(view.executed_at)


def _wire_path(field: str) -> Path:
    """The core's name of a field as this surface calls it."""
    head, below, inner = field.partition("/")
    name = "callback_payload" if head == "payload" else head
    return (name, inner) if below else (name,)


def _timer_id(request: Request) -> str:
    uuid_ = request.tail.lower()
    if _UUID.fullmatch(uuid_) is None:
        raise Refusal("must be a UUID", ("id",))
    return uuid_


def _policy(given: rest.RestRetryPolicy | None) -> RetryPolicy | None:
    if given is None:
        return None
    return RetryPolicy(
        max_attempts=given.max_attempts,
        max_attempts_duration=given.max_attempts_duration,
        initial_interval=given.initial_interval,
        backoff_multiplier=given.backoff_multiplier,
        max_interval=given.max_interval,
    )


def _parameters(query: bytes) -> dict[str, str]:
    try:
        pairs = parse_qsl(
            query.decode("latin-1"), keep_blank_values=True, max_num_fields=_PARAMETERS_MAX
        )
    except ValueError:
        raise Refusal(f"the query has more than {_PARAMETERS_MAX} parameters") from None
    found: dict[str, str] = {}
    for name, value in pairs:
        if name not in _PARAMETERS:
            raise Refusal("is not a known query parameter", (name,))
        if name in found:
            raise Refusal("is given twice", (name,))
        found[name] = value
    return found


def _whole(asked: dict[str, str], name: str, default: int) -> int:
    text = asked.get(name)
    if text is None:
        return default
    match = _WHOLE.fullmatch(text)
    if match is None:
        raise Refusal("must be a whole number", (name,))
    sign, digits = match.groups()
    # Python refuses to read thousands of digits; beyond 18 only the sign still matters.
    return int(sign + (digits if len(digits) <= 18 else "9" * 18))


def _one_of(asked: dict[str, str], name: str, allowed: tuple[C, ...]) -> C | None:
    text = asked.get(name)
    if text is None:
        return None
    for choice in allowed:
        if choice == text:
            return choice
    raise Refusal(f"must be {', '.join(allowed[:-1])} or {allowed[-1]}", (name,))
