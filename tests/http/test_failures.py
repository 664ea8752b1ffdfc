"""When we fail: the shape stays, the cause is logged, and none of it reaches the caller."""

import logging

import pytest

from duetime.errors import LeaseLost, StoreUnavailable, Unavailable
from tests.http.server import Reply, Server, new_rest_timer, new_timer

SECRET = "password=hunter2"


async def asked(server: Server, surface: str) -> Reply:
    if surface == "v1":
        return await server.v1("timers/create", new_timer())
    return await server.ask("POST", "/timers", new_rest_timer())


def failing(server: Server, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    async def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(server.node.service, "create", fail)
    monkeypatch.setattr(server.node.service, "create_many", fail)


def told(reply: Reply, surface: str) -> object:
    if surface == "v1":
        assert set(reply.json) == {"error", "message", "details", "timestamp"}
        return reply.json["error"]
    assert set(reply.json) == {"code", "message", "data"}
    assert reply.json["data"] is None
    return reply.json["code"]


@pytest.mark.parametrize(("surface", "code"), [("v1", "INTERNAL_ERROR"), ("rest", 1)])
async def test_an_unexpected_error_is_logged_once_and_kept_from_the_caller(
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    surface: str,
    code: object,
) -> None:
    failing(server, monkeypatch, ZeroDivisionError(SECRET))
    reply = await asked(server, surface)
    assert (reply.status, told(reply, surface)) == (500, code)
    assert reply.json["message"] == "internal error"
    logged = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert [record.getMessage() for record in logged] == ["request failed"]
    assert logged[0].exc_info is not None
    assert logged[0].exc_info[0] is ZeroDivisionError


@pytest.mark.parametrize(("surface", "code"), [("v1", "UNAVAILABLE"), ("rest", 1)])
@pytest.mark.parametrize("error", [StoreUnavailable(SECRET), LeaseLost(3, 17)])
async def test_a_failing_database_is_said_to_be_unavailable(
    server: Server, monkeypatch: pytest.MonkeyPatch, surface: str, code: object, error: Exception
) -> None:
    failing(server, monkeypatch, error)
    reply = await asked(server, surface)
    assert (reply.status, told(reply, surface)) == (503, code)
    assert reply.json["message"] == "the database is unavailable"
    assert reply.headers["retry-after"] == "1"
    batch = await server.v1("timers/batch", {"timers": [new_timer()]})
    assert (batch.status, batch.json["error"]) == (503, "UNAVAILABLE")


@pytest.mark.parametrize(("surface", "code"), [("v1", "UNAVAILABLE"), ("rest", 1)])
async def test_what_cannot_be_served_now_says_when_to_try_again(
    server: Server, monkeypatch: pytest.MonkeyPatch, surface: str, code: object
) -> None:
    failing(server, monkeypatch, Unavailable("too many requests are waiting", retry_after_s=7))
    reply = await asked(server, surface)
    assert (reply.status, told(reply, surface)) == (503, code)
    assert reply.json["message"] == "too many requests are waiting"
    assert reply.headers["retry-after"] == "7"


async def test_in_a_batch_what_is_unavailable_is_told_item_by_item(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_many = server.node.service.create_many

    async def half(news: list[object]) -> list[object]:
        return [*await create_many(news[:1]), Unavailable("not now")]  # type: ignore[arg-type]

    monkeypatch.setattr(server.node.service, "create_many", half)
    reply = await server.v1("timers/batch", {"timers": [new_timer(), new_timer(id="b")]})
    assert reply.status == 200
    assert reply.json["results"][0]["timer"]["id"] == "a"
    expected = {"error": "UNAVAILABLE", "message": "not now", "details": None}
    assert reply.json["results"][1] == expected
