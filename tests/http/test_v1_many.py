"""V1: lists, batches and namespaces."""

import base64
from typing import Any

import pytest

from tests.http.server import Server, new_timer


async def listed(server: Server, **fields: Any) -> Any:
    reply = await server.v1("timers/list", {"namespace": "default", **fields})
    assert reply.status == 200, reply.json
    return reply.json


def ids(page: Any) -> list[str]:
    return [timer["id"] for timer in page["timers"]]


async def test_a_list_is_paged_in_the_order_of_firing(server: Server) -> None:
    for number in (3, 1, 2):
        await server.created(f"t{number}", executeAt=f"2099-01-0{number}T00:00:00Z")
    first = await listed(server, limit=2)
    assert ids(first) == ["t1", "t2"]
    second = await listed(server, limit=2, cursor=first["nextCursor"])
    assert ids(second) == ["t3"]
    assert second["nextCursor"] is None


async def test_a_list_is_narrowed_by_prefix_status_and_time(server: Server) -> None:
    for number in (1, 2, 3):
        await server.created(f"t{number}", executeAt=f"2099-01-0{number}T00:00:00Z")
    await server.created("other", executeAt="2099-01-02T00:00:00Z")
    await server.v1("timers/delete", {"namespace": "default", "timerId": "t3"})
    assert ids(await listed(server, idPrefix="t")) == ["t1", "t2", "t3"]
    assert ids(await listed(server, status="canceled")) == ["t3"]
    assert ids(await listed(server, idPrefix="t", status="pending")) == ["t1", "t2"]
    span = {"executeAfter": "2099-01-01T00:00:00Z", "executeBefore": "2099-01-02T00:00:00Z"}
    assert ids(await listed(server, **span)) == ["t1"]


async def test_executing_timers_are_listed(server: Server) -> None:
    await server.executing("busy")
    assert ids(await listed(server, status="executing")) == ["busy"]
    assert (await listed(server))["timers"][0]["status"] == "executing"


@pytest.mark.parametrize(
    ("limit", "used"), [(0, 1), (-5, 1), (2, 2), (1_000, 3), (10**40, 3), (None, 3)]
)
async def test_the_limit_of_a_list_is_clamped(server: Server, limit: int, used: int) -> None:
    for number in (1, 2, 3):
        await server.created(f"t{number}")
    assert len((await listed(server, limit=limit))["timers"]) == used


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("limit", "10"),
        ("limit", 1.5),
        ("limit", True),
        ("status", "gone"),
        ("status", 3),
        ("idPrefix", 3),
        ("executeAfter", "yesterday"),
        ("executeBefore", 5),
        ("cursor", ""),
        ("cursor", "!"),
        ("cursor", "é"),
        ("cursor", "AAAA"),
        ("cursor", base64.urlsafe_b64encode(b"\xff" * 32).decode()),
        ("cursor", 7),
        ("offset", 3),
    ],
)
async def test_a_wrong_list_request_is_refused_by_its_field(
    server: Server, field: str, value: Any
) -> None:
    reply = await server.v1("timers/list", {"namespace": "default", field: value})
    assert (reply.status, reply.json["error"]) == (400, "INVALID_INPUT")
    assert reply.json["details"] == {"field": f"/{field}"}
    assert reply.json["message"].startswith(field)


async def test_the_message_says_which_values_there_are(server: Server) -> None:
    reply = await server.v1("timers/list", {"namespace": "default", "status": "gone"})
    expected = "status must be canceled, completed, executing, failed or pending"
    assert reply.json["message"] == expected


async def test_a_batch_is_answered_in_the_order_asked(server: Server) -> None:
    timers = [new_timer(id=f"t{number}") for number in range(1_000)]
    reply = await server.v1("timers/batch", {"timers": timers})
    assert reply.status == 200
    results = reply.json["results"]
    assert [result["timer"]["id"] for result in results] == [timer["id"] for timer in timers]
    assert all(set(result) == {"timer"} for result in results)


@pytest.mark.parametrize(
    ("item", "error", "pointer"),
    [
        (new_timer(id=""), "INVALID_INPUT", "/id"),
        (new_timer(namespace="nowhere"), "UNKNOWN_NAMESPACE", "/namespace"),
        (new_timer(payload={"a": "x" * 102_400}), "PAYLOAD_TOO_LARGE", "/payload"),
        (new_timer(executeAt="2020-01-01T00:00:00Z"), "INVALID_INPUT", "/executeAt"),
        (new_timer(executeAt="soon"), "INVALID_INPUT", "/executeAt"),
        (new_timer(extra=1), "INVALID_INPUT", "/extra"),
        (new_timer(callbackHeaders={"X-A": 1}), "INVALID_INPUT", "/callbackHeaders/X-A"),
        ({"namespace": "default"}, "INVALID_INPUT", "/id"),
        (
            new_timer(retryPolicy={"maxRetries": 1, "maxAttempts": 2}),
            "INVALID_INPUT",
            "/retryPolicy/maxRetries",
        ),
        ([], "INVALID_INPUT", None),
        (None, "INVALID_INPUT", None),
        (17, "INVALID_INPUT", None),
    ],
)
async def test_a_bad_item_of_a_batch_does_not_harm_the_others(
    server: Server, item: Any, error: str, pointer: str | None
) -> None:
    reply = await server.v1(
        "timers/batch", {"timers": [new_timer(id="x"), item, new_timer(id="y")]}
    )
    assert reply.status == 200
    first, bad, last = reply.json["results"]
    assert (first["timer"]["id"], last["timer"]["id"]) == ("x", "y")
    assert set(bad) == {"error", "message", "details"}
    assert bad["error"] == error
    assert bad["details"] == (None if pointer is None else {"field": pointer})
    assert set(await server.timers()) == {"x", "y"}


@pytest.mark.parametrize(
    "body",
    [
        {"timers": []},
        {"timers": [new_timer(id=f"t{number}") for number in range(1_001)]},
        {"timers": [1] * 1_001},
        {"timers": {"0": new_timer()}},
        {"timers": "t"},
        {"timers": None},
        {},
    ],
    ids=["none", "1001", "1001 of no shape", "object", "string", "null", "absent"],
)
async def test_a_batch_holds_one_to_a_thousand_timers(server: Server, body: Any) -> None:
    reply = await server.v1("timers/batch", body)
    assert (reply.status, reply.json["error"]) == (400, "INVALID_INPUT")
    assert reply.json["details"] == {"field": "/timers"}
    assert await server.timers() == []


async def test_of_one_key_twice_in_a_batch_the_later_wins(server: Server) -> None:
    pair = [new_timer(payload={"n": 1}), new_timer(payload={"n": 2})]
    reply = await server.v1("timers/batch", {"timers": pair})
    assert [result["timer"]["payload"]["n"] for result in reply.json["results"]] == [1, 2]
    assert (await server.shown("a"))["payload"] == {"n": 2}


async def test_a_namespace_is_created_read_changed_and_listed(server: Server) -> None:
    created = await server.v1("namespaces/create", {"name": "billing", "numShards": 4})
    assert created.status == 200
    assert set(created.json) == {
        "name",
        "numShards",
        "historyRetentionSeconds",
        "minDelaySeconds",
        "retryPolicy",
        "createdAt",
        "updatedAt",
    }
    assert (created.json["numShards"], created.json["historyRetentionSeconds"]) == (4, 604_800)

    change = {"historyRetentionSeconds": 0, "minDelaySeconds": 5, "retryPolicy": {"maxRetries": 1}}
    changed = await server.ask("POST", "/api/v1/namespaces/update", {"name": "billing", **change})
    assert changed.json["historyRetentionSeconds"] == 0
    assert changed.json["minDelaySeconds"] == 5
    assert changed.json["retryPolicy"] == {"maxAttempts": 2}

    cleared = await server.v1("namespaces/update", {"name": "billing", **dict.fromkeys(change)})
    assert cleared.json["historyRetentionSeconds"] == 604_800
    assert cleared.json["retryPolicy"] is None

    read = await server.v1("namespaces/get", {"name": "billing"})
    assert read.json == cleared.json
    every = await server.v1("namespaces/list", {})
    assert [namespace["name"] for namespace in every.json["namespaces"]] == ["billing", "default"]
    assert every.json["namespaces"][0] == read.json


async def test_timers_live_in_the_namespace_that_was_created(server: Server) -> None:
    await server.v1("namespaces/create", {"name": "billing", "numShards": 64})
    await server.created("a", namespace="billing")
    await server.created("a")
    reply = await server.v1("timers/list", {"namespace": "billing"})
    assert [timer["namespace"] for timer in reply.json["timers"]] == ["billing"]


async def test_namespaces_are_listed_without_a_body_too(server: Server) -> None:
    reply = await server.ask("POST", "/namespaces/list")
    assert (reply.status, len(reply.json["namespaces"])) == (200, 1)


async def test_a_namespace_of_the_same_name_is_a_conflict(server: Server) -> None:
    reply = await server.v1("namespaces/create", {"name": "default", "numShards": 16})
    assert (reply.status, reply.json["error"]) == (409, "NAMESPACE_EXISTS")


@pytest.mark.parametrize("operation", ["get", "update"])
async def test_an_unknown_namespace_is_not_found(server: Server, operation: str) -> None:
    reply = await server.v1(f"namespaces/{operation}", {"name": "nowhere"})
    assert (reply.status, reply.json["error"]) == (404, "NAMESPACE_NOT_FOUND")


@pytest.mark.parametrize(
    ("operation", "fields", "pointer"),
    [
        ("create", {"name": ""}, "/name"),
        ("create", {"name": "a:b"}, "/name"),
        ("create", {"name": None}, "/name"),
        ("create", {"numShards": 0}, "/numShards"),
        ("create", {"numShards": "16"}, "/numShards"),
        ("create", {"numShards": 10**30}, "/numShards"),
        ("create", {"historyRetentionSeconds": -1}, "/historyRetentionSeconds"),
        ("create", {"minDelaySeconds": 0.5}, "/minDelaySeconds"),
        ("create", {"retryPolicy": {"maxAttempts": 0}}, "/retryPolicy/maxAttempts"),
        ("create", {"shards": 3}, "/shards"),
        ("update", {"name": "default", "numShards": 17}, "/numShards"),
        ("get", {"name": 1}, "/name"),
        ("list", {"name": "x"}, "/name"),
    ],
)
async def test_a_wrong_namespace_request_is_refused_by_its_field(
    server: Server, operation: str, fields: dict[str, Any], pointer: str
) -> None:
    valid = {"name": "new", "numShards": 4} if operation == "create" else {}
    reply = await server.v1(f"namespaces/{operation}", {**valid, **fields})
    assert (reply.status, reply.json["error"]) == (400, "INVALID_INPUT")
    assert reply.json["details"] == {"field": pointer}
    every = await server.v1("namespaces/list", {})
    assert [namespace["name"] for namespace in every.json["namespaces"]] == ["default"]


async def test_the_number_of_shards_may_be_repeated_but_not_changed(server: Server) -> None:
    reply = await server.v1("namespaces/update", {"name": "default", "numShards": 16})
    assert (reply.status, reply.json["numShards"]) == (200, 16)
