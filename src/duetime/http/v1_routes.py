"""Where V1 is served. Every path exists bare and under /api/v1; those of the cluster, which
are for people and their tools, under /api/v1 only."""

from typing import Any

from msgspec import structs

from duetime.http import v1_types as v1
from duetime.http.routes import Route, Surface
from duetime.http.v1 import V1
from duetime.service import Service

PREFIX = "/api/v1"


def v1_surface(service: Service, *, payload_bytes_max: int) -> Surface:
    """V1 on a service."""
    handlers = V1(service, payload_bytes_max=payload_bytes_max)
    bare = _routes(handlers)
    prefixed = tuple(structs.replace(route, path=PREFIX + route.path) for route in bare)
    return Surface(bare + prefixed + _cluster_routes(handlers), handlers.problem)


_KEY = {"namespace": "default", "timerId": "user-notification-123"}
_TIMER: dict[str, Any] = {
    "id": "user-notification-123",
    "namespace": "default",
    "executeAt": "2030-01-31T09:30:00.000Z",
    "callbackUrl": "https://api.example.com/webhook",
    "callbackMethod": "POST",
    "callbackHeaders": {"Authorization": "Bearer token123"},
    "callbackTimeoutSeconds": 10,
    "payload": {"user": 123},
    "metadata": None,
    "retryPolicy": {"maxAttempts": 5, "initialInterval": "30s"},
    "status": "pending",
    "attempts": 0,
    "lastError": None,
    "createdAt": "2030-01-31T09:00:00.000Z",
    "updatedAt": "2030-01-31T09:00:00.000Z",
    "executedAt": None,
}
_CREATE = {
    name: _TIMER[name]
    for name in (
        "namespace",
        "id",
        "executeAt",
        "callbackUrl",
        "payload",
        "retryPolicy",
        "callbackTimeoutSeconds",
        "callbackHeaders",
    )
}
_NAMESPACE: dict[str, Any] = {
    "name": "billing",
    "numShards": 64,
    "historyRetentionSeconds": 86_400,
    "minDelaySeconds": 1,
    "retryPolicy": None,
    "createdAt": "2030-01-31T09:00:00.000Z",
    "updatedAt": "2030-01-31T09:00:00.000Z",
}


_NODE: dict[str, Any] = {
    "name": "timers-1:1",
    "address": "10.0.0.11:7000",
    "version": "0.1.0",
    "startedAt": "2030-01-31T09:00:00.000Z",
    "shards": 16,
    "inFlight": 12,
    "backlog": 0,
    "skewMs": 3,
    "draining": False,
}
_CLUSTER: dict[str, Any] = {
    "nodes": [_NODE],
    "shards": [{"number": 0, "version": 1, "owner": "timers-1:1"}],
    "namespaces": 1,
}


def _cluster_routes(handlers: V1) -> tuple[Route, ...]:
    return (
        Route(
            method="GET",
            path=PREFIX + "/cluster",
            handle=handlers.show_cluster,
            summary="The nodes that are alive, and who owns which shard",
            gives=v1.Cluster,
            examples=(None, _CLUSTER),
        ),
        Route(
            method="POST",
            path=PREFIX + "/cluster/drain",
            handle=handlers.drain_node,
            summary="Have a node hand its shards over and take no more, or undo that",
            takes=v1.DrainRequest,
            gives=v1.Drained,
            errors=(404,),
            examples=(
                {"node": "timers-1:1"},
                {"node": "timers-1:1", "draining": True},
            ),
        ),
    )


def _routes(handlers: V1) -> tuple[Route, ...]:
    return (
        Route(
            method="POST",
            path="/timers/create",
            handle=handlers.create_timer,
            summary="Create a timer, or replace the one of the same id",
            takes=v1.CreateTimerRequest,
            gives=v1.Timer,
            examples=(_CREATE, _TIMER),
        ),
        Route(
            method="POST",
            path="/timers/get",
            handle=handlers.get_timer,
            summary="Read a timer, finished ones included while history has them",
            takes=v1.TimerSelection,
            gives=v1.Timer,
            errors=(404,),
            examples=(_KEY, _TIMER),
            id_field="timerId",
        ),
        Route(
            method="POST",
            path="/timers/update",
            handle=handlers.update_timer,
            summary="Change a pending timer",
            takes=v1.UpdateTimerRequest,
            gives=v1.Timer,
            errors=(404, 409),
            examples=({**_KEY, "executeAt": _TIMER["executeAt"]}, _TIMER),
            id_field="timerId",
        ),
        Route(
            method="POST",
            path="/timers/delete",
            handle=handlers.delete_timer,
            summary="Cancel a pending timer; its callback is never sent",
            status=204,
            takes=v1.TimerSelection,
            errors=(404, 409),
            examples=(_KEY, None),
            id_field="timerId",
        ),
        Route(
            method="POST",
            path="/timers/list",
            handle=handlers.list_timers,
            summary="List a namespace's timers in the order in which they fire",
            takes=v1.ListTimersRequest,
            gives=v1.TimerPage,
            examples=(
                {"namespace": "default", "status": "pending", "limit": 50},
                {"timers": [_TIMER], "nextCursor": None},
            ),
        ),
        Route(
            method="POST",
            path="/timers/batch",
            handle=handlers.create_batch,
            summary="Create up to 1,000 timers, each judged on its own",
            takes=v1.BatchRequest,
            gives=v1.BatchResults,
            examples=({"timers": [_CREATE]}, {"results": [{"timer": _TIMER}]}),
        ),
        Route(
            method="POST",
            path="/namespaces/create",
            handle=handlers.create_namespace,
            summary="Create a namespace",
            takes=v1.CreateNamespaceRequest,
            gives=v1.Namespace,
            errors=(409,),
            examples=({"name": "billing", "numShards": 64}, _NAMESPACE),
        ),
        Route(
            method="POST",
            path="/namespaces/get",
            handle=handlers.get_namespace,
            summary="Read a namespace",
            takes=v1.NamespaceSelection,
            gives=v1.Namespace,
            errors=(404,),
            examples=({"name": "billing"}, _NAMESPACE),
        ),
        Route(
            method="POST",
            path="/namespaces/update",
            handle=handlers.update_namespace,
            summary="Change a namespace's settings",
            takes=v1.UpdateNamespaceRequest,
            gives=v1.Namespace,
            errors=(404,),
            examples=({"name": "billing", "historyRetentionSeconds": 86_400}, _NAMESPACE),
        ),
        Route(
            method="POST",
            path="/namespaces/list",
            handle=handlers.list_namespaces,
            summary="List all namespaces",
            takes=v1.NoFields,
            body_optional=True,
            gives=v1.Namespaces,
            examples=({}, {"namespaces": [_NAMESPACE]}),
        ),
    )
