"""V1: one timer at a time."""

from typing import Any

import pytest

from duetime.instants import format_instant
from tests.http.server import LATER, URL, Server, new_timer

TIMER_KEYS = {
    "id",
    "namespace",
    "executeAt",
    "callbackUrl",
    "callbackMethod",
    "callbackHeaders",
    "callbackTimeoutSeconds",
    "payload",
    "metadata",
    "retryPolicy",
    "status",
    "attempts",
    "lastError",
    "createdAt",
    "updatedAt",
    "executedAt",
}
SELECTION = {"namespace": "default", "timerId": "a"}


@pytest.mark.parametrize("prefix", ["", "/api/v1"])
async def test_a_timer_is_created_read_changed_and_deleted(server: Server, prefix: str) -> None:
    created = await server.ask("POST", f"{prefix}/timers/create", new_timer())
    assert (created.status, created.headers["content-type"]) == (200, "application/json")
    assert created.json["status"] == "pending"

    read = await server.ask("POST", f"{prefix}/timers/get", SELECTION)
    assert (read.status, read.json) == (200, created.json)

    change = {**SELECTION, "callbackUrl": "https://other.example.com/"}
    changed = await server.ask("POST", f"{prefix}/timers/update", change)
    assert changed.status == 200
    assert changed.json["callbackUrl"] == "https://other.example.com/"
    assert changed.json["executeAt"] == LATER

    deleted = await server.ask("POST", f"{prefix}/timers/delete", SELECTION)
    assert (deleted.status, deleted.body) == (204, b"")
    assert "content-length" not in deleted.headers
    assert "content-type" not in deleted.headers

    again = await server.ask("POST", f"{prefix}/timers/delete", SELECTION)
    assert (again.status, again.json["error"]) == (404, "TIMER_NOT_FOUND")


async def test_a_timer_always_has_all_keys_and_null_where_there_is_nothing(server: Server) -> None:
    timer = await server.created()
    assert set(timer) == TIMER_KEYS
    empty = {name for name in TIMER_KEYS if timer[name] is None}
    assert empty == {
        "callbackHeaders",
        "payload",
        "metadata",
        "retryPolicy",
        "lastError",
        "executedAt",
    }
    assert (timer["callbackMethod"], timer["callbackTimeoutSeconds"]) == ("POST", 30)
    assert timer["attempts"] == 0


async def test_everything_that_was_given_comes_back_as_it_was_given(server: Server) -> None:
    given: dict[str, Any] = {
        "payload": {"n": 1.10, "text": 'é " \\ \u2028', "deep": [[{}]]},
        "metadata": [1, "two", None],
        "callbackHeaders": {"X-Order": "17"},
        "callbackTimeoutSeconds": 7,
        "retryPolicy": {
            "maxAttempts": 5,
            "maxAttemptsDuration": "24h",
            "initialInterval": "500ms",
            "backoffMultiplier": 1.5,
            "maxInterval": "5m",
        },
    }
    await server.created(**given)
    shown = await server.shown("a")
    assert {name: shown[name] for name in given} == given


async def test_payload_and_metadata_are_kept_byte_for_byte(server: Server) -> None:
    body = (
        b'{"namespace":"default","id":"a","callbackUrl":"https://example.com/","executeAt":"'
        + LATER.encode()
        + b'","payload" :  {"b": 1.0,  "a":\t1e2, "a": "\\u00e9\\ud83d\\ude00"} ,"metadata": "x"}'
    )
    created = await server.ask("POST", "/timers/create", body)
    assert b'"payload":{"b": 1.0,  "a":\t1e2, "a": "\\u00e9\\ud83d\\ude00"},' in created.body
    assert b'"metadata":"x",' in created.body


async def test_null_for_an_optional_field_is_its_absence(server: Server) -> None:
    names = (
        "payload",
        "metadata",
        "callbackHeaders",
        "callbackTimeoutSeconds",
        "retryPolicy",
    )
    absent: dict[str, Any] = dict.fromkeys(names)
    timer = await server.created(**absent)
    assert timer["payload"] is timer["metadata"] is timer["retryPolicy"] is None
    assert timer["callbackTimeoutSeconds"] == 30


async def test_a_create_replaces_the_timer_of_the_same_id_whole(server: Server) -> None:
    await server.created(payload={"first": True}, metadata=1)
    second = await server.created(executeAt="2098-01-01T00:00:00Z")
    assert (second["payload"], second["metadata"]) == (None, None)
    assert second["executeAt"] == "2098-01-01T00:00:00.000Z"
    assert await server.timers() == ["a"]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("2099-01-31T09:30:00Z", "2099-01-31T09:30:00.000Z"),
        ("2099-01-31T10:30:00+01:00", "2099-01-31T09:30:00.000Z"),
        ("2099-01-31T09:30:00.0001Z", "2099-01-31T09:30:00.001Z"),
        ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"),
    ],
)
async def test_instants_are_answered_in_utc_with_milliseconds(
    server: Server, given: str, shown: str
) -> None:
    assert (await server.created(executeAt=given))["executeAt"] == shown


async def test_the_older_names_of_a_retry_policy_become_the_newer_ones(server: Server) -> None:
    old = {"maxRetries": 3, "maxRetryAttemptsDuration": "1h", "initialInterval": "30s"}
    timer = await server.created(retryPolicy=old)
    assert timer["retryPolicy"] == {
        "maxAttempts": 4,
        "maxAttemptsDuration": "1h",
        "initialInterval": "30s",
    }


@pytest.mark.parametrize(
    ("policy", "pointer"),
    [
        ({"maxRetries": 3, "maxAttempts": 4}, "/retryPolicy/maxRetries"),
        (
            {"maxRetryAttemptsDuration": "1h", "maxAttemptsDuration": "1h"},
            "/retryPolicy/maxRetryAttemptsDuration",
        ),
        ({"maxRetries": -1}, "/retryPolicy/maxRetries"),
        ({"maxRetries": 1_000_000}, "/retryPolicy/maxRetries"),
        ({"maxRetryAttemptsDuration": "soon"}, "/retryPolicy/maxRetryAttemptsDuration"),
        ({"maxRetryAttemptsDuration": "0s"}, "/retryPolicy/maxRetryAttemptsDuration"),
        ({"maxAttempts": 0}, "/retryPolicy/maxAttempts"),
        ({"initialInterval": "30"}, "/retryPolicy/initialInterval"),
        ({"backoffMultiplier": 0.5}, "/retryPolicy/backoffMultiplier"),
        ({"retries": 3}, "/retryPolicy/retries"),
        ({"maxAttempts": 1.5}, "/retryPolicy/maxAttempts"),
    ],
)
async def test_a_wrong_retry_policy_is_refused_by_its_field(
    server: Server, policy: dict[str, Any], pointer: str
) -> None:
    reply = await server.v1("timers/create", new_timer(retryPolicy=policy))
    assert (reply.status, reply.json["error"]) == (400, "INVALID_INPUT")
    assert reply.json["details"] == {"field": pointer}
    assert await server.timers() == []


async def test_an_update_leaves_what_is_absent_and_clears_what_is_null(server: Server) -> None:
    given: dict[str, Any] = {
        "payload": {"a": 1},
        "metadata": {"b": 2},
        "callbackHeaders": {"X-C": "3"},
        "callbackTimeoutSeconds": 4,
        "retryPolicy": {"maxAttempts": 5},
    }
    before = await server.created(**given)

    untouched = await server.v1("timers/update", SELECTION)
    assert {**untouched.json, "updatedAt": 0} == {**before, "updatedAt": 0}

    cleared = await server.v1("timers/update", {**SELECTION, **dict.fromkeys(given)})
    assert cleared.status == 200
    assert cleared.json["callbackTimeoutSeconds"] == 30
    for name in ("payload", "metadata", "callbackHeaders", "retryPolicy"):
        assert cleared.json[name] is None

    changed = await server.v1(
        "timers/update", {**SELECTION, **given, "executeAt": "2098-01-01T00:00:00Z"}
    )
    assert {name: changed.json[name] for name in given} == given
    assert changed.json["executeAt"] == "2098-01-01T00:00:00.000Z"


@pytest.mark.parametrize("field", ["executeAt", "callbackUrl", "namespace", "timerId"])
async def test_an_update_refuses_null_for_a_required_field(server: Server, field: str) -> None:
    before = await server.created()
    reply = await server.v1("timers/update", {**SELECTION, "payload": {"new": 1}, field: None})
    assert (reply.status, reply.json["details"]) == (400, {"field": f"/{field}"})
    assert await server.shown("a") == before


@pytest.mark.parametrize("operation", ["get", "update", "delete"])
async def test_an_unknown_timer_is_not_found(server: Server, operation: str) -> None:
    reply = await server.v1(f"timers/{operation}", {"namespace": "default", "timerId": "nobody"})
    assert (reply.status, reply.json["error"]) == (404, "TIMER_NOT_FOUND")
    assert reply.json["details"] is None


@pytest.mark.parametrize("operation", ["get", "update", "delete"])
async def test_an_id_out_of_bounds_is_named_as_the_operation_calls_it(
    server: Server, operation: str
) -> None:
    reply = await server.v1(f"timers/{operation}", {"namespace": "default", "timerId": "x" * 256})
    assert (reply.status, reply.json["details"]) == (400, {"field": "/timerId"})
    assert reply.json["message"].startswith("timerId must ")


@pytest.mark.parametrize("operation", ["get", "update", "delete", "list"])
async def test_a_timer_operation_on_an_unknown_namespace_is_a_bad_request(
    server: Server, operation: str
) -> None:
    selection = {"namespace": "nowhere", "timerId": "a"}
    if operation == "list":
        del selection["timerId"]
    reply = await server.v1(f"timers/{operation}", selection)
    assert (reply.status, reply.json["error"]) == (400, "UNKNOWN_NAMESPACE")
    assert reply.json["details"] == {"field": "/namespace"}


async def test_while_its_callback_is_under_way_a_timer_cannot_be_changed(server: Server) -> None:
    await server.executing()
    assert (await server.shown("a"))["status"] == "executing"
    for operation in ("update", "delete"):
        reply = await server.v1(f"timers/{operation}", SELECTION)
        assert (reply.status, reply.json["error"]) == (409, "TIMER_EXECUTING")


@pytest.mark.parametrize(("status", "name"), [(200, "completed"), (404, "failed")])
async def test_a_finished_timer_can_be_read_and_no_longer_changed(
    server: Server, status: int, name: str
) -> None:
    await server.ended("a", status=status)
    shown = await server.shown("a")
    assert (shown["status"], shown["attempts"]) == (name, 1)
    assert shown["executedAt"] is not None
    assert (shown["lastError"] is None) == (status == 200)
    for operation in ("update", "delete"):
        reply = await server.v1(f"timers/{operation}", SELECTION)
        assert (reply.status, reply.json["error"]) == (404, "TIMER_NOT_FOUND")


async def test_a_deleted_timer_is_kept_as_canceled(server: Server) -> None:
    await server.created()
    await server.v1("timers/delete", SELECTION)
    shown = await server.shown("a")
    assert (shown["status"], shown["executedAt"]) == ("canceled", None)


async def test_a_time_in_the_past_is_refused(server: Server) -> None:
    past = format_instant(server.node.clock.now() - 1_000)
    reply = await server.v1("timers/create", new_timer(executeAt=past))
    assert (reply.status, reply.json["error"]) == (400, "INVALID_INPUT")
    assert reply.json["message"] == "executeAt must be in the future"


async def test_a_timer_of_the_simple_surface_can_be_seen_and_changed(server: Server) -> None:
    body = {"execute_at": LATER, "callback_url": URL, "callback_method": "PUT"}
    created = await server.ask("POST", "/timers", body)
    selection = {"namespace": "default", "timerId": created.data["id"]}
    changed = await server.v1("timers/update", {**selection, "retryPolicy": {"maxAttempts": 2}})
    assert changed.json["callbackMethod"] == "PUT"
    assert changed.json["retryPolicy"] == {"maxAttempts": 2}
