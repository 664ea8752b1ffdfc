"""Where REST is served."""

from typing import Any

from duetime.http import rest_types as rest
from duetime.http.rest import DATABASE_LOST, Rest
from duetime.http.routes import Route, Surface
from duetime.model import STATUSES
from duetime.service import Service


def rest_surface(service: Service, *, payload_bytes_max: int) -> Surface:
    """REST on a service."""
    handlers = Rest(service, payload_bytes_max=payload_bytes_max)
    return Surface(_routes(handlers), handlers.problem)


_ID = "550e8400-e29b-41d4-a716-446655440000"
_NEW: dict[str, Any] = {
    "execute_at": "2030-10-26T15:30:00Z",
    "callback_url": "https://api.example.com/webhook",
    "callback_method": "POST",
    "callback_headers": {"Authorization": "Bearer token123"},
    "callback_payload": {"event": "timer_triggered"},
    "metadata": {"client_ref": "order-456"},
}
_SUMMARY: dict[str, Any] = {
    "id": _ID,
    "created_at": "2030-10-26T10:30:00.000Z",
    "execute_at": "2030-10-26T15:30:00.000Z",
    "callback_url": "https://api.example.com/webhook",
    "callback_method": "POST",
    "status": "pending",
    "executed_at": None,
}
_UPDATED = {**_SUMMARY, "updated_at": "2030-10-26T11:00:00.000Z"}
_DETAILS = {**_UPDATED, **_NEW, "execute_at": _SUMMARY["execute_at"], "last_error": None}
_HEALTH = {"status": "up", "database": "connected", "timestamp": "2030-10-26T10:30:00.000Z"}


def _parameter(name: str, description: str, **schema: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": description, "schema": schema}


_LIST_PARAMETERS = (
    _parameter("status", "Only timers in this status.", enum=list(STATUSES)),
    _parameter("limit", "How many; clamped to 1..200.", type="integer", default=50),
    _parameter("offset", "How many to pass over first.", type="integer", default=0),
    _parameter("sort", "By what.", enum=["created_at", "execute_at"], default="created_at"),
    _parameter("order", "Which way.", enum=["asc", "desc"], default="desc"),
)


def _routes(handlers: Rest) -> tuple[Route, ...]:
    health = tuple(
        Route(
            method="GET",
            path=path,
            handle=handlers.health,
            summary="Whether the database answers; needs no key",
            gives=rest.Health,
            message="healthy",
            examples=(None, _HEALTH),
            open_to_all=True,
            unwell=(500, DATABASE_LOST),
        )
        for path in ("/health", "/healthz")
    )
    return (
        Route(
            method="POST",
            path="/timers",
            handle=handlers.create_timer,
            summary="Create a timer",
            status=201,
            takes=rest.NewTimer,
            gives=rest.TimerSummary,
            message="timer created successfully",
            examples=(_NEW, _SUMMARY),
        ),
        Route(
            method="GET",
            path="/timers",
            handle=handlers.list_timers,
            summary="List timers",
            query=_LIST_PARAMETERS,
            gives=rest.TimerList,
            examples=(None, {"timers": [_SUMMARY], "total": 1, "limit": 50, "offset": 0}),
        ),
        Route(
            method="GET",
            path="/timers/{id}",
            handle=handlers.get_timer,
            summary="Read a timer",
            gives=rest.TimerDetails,
            errors=(404,),
            examples=(None, _DETAILS),
        ),
        Route(
            method="PUT",
            path="/timers/{id}",
            handle=handlers.update_timer,
            summary="Change a pending timer",
            takes=rest.TimerChanges,
            gives=rest.UpdatedTimer,
            message="timer updated successfully",
            errors=(404,),
            examples=({"execute_at": "2030-10-26T16:00:00Z"}, _UPDATED),
            verb="update",
        ),
        Route(
            method="DELETE",
            path="/timers/{id}",
            handle=handlers.cancel_timer,
            summary="Cancel a pending timer; its callback is never sent",
            gives=rest.CanceledTimer,
            message="timer canceled successfully",
            errors=(404,),
            examples=(None, {"id": _ID, "status": "canceled"}),
            verb="cancel",
        ),
        *health,
        Route(
            method="GET",
            path="/ready",
            handle=handlers.ready,
            summary="Whether to send this server requests; needs no key",
            gives=rest.Readiness,
            message="ready",
            examples=(None, {"ready": True}),
            open_to_all=True,
            unwell=(503, "this node drains"),
        ),
    )
