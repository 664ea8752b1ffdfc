"""Who may ask, what is there, and in which shape the answer comes."""

from typing import Any

import pytest

from tests.http.server import KEY, UNKNOWN_ID, Reply, Server, new_rest_timer, new_timer

V1_PATHS = [
    prefix + path
    for prefix in ("", "/api/v1")
    for path in (
        "/timers/create",
        "/timers/get",
        "/timers/update",
        "/timers/delete",
        "/timers/list",
        "/timers/batch",
        "/namespaces/create",
        "/namespaces/get",
        "/namespaces/update",
        "/namespaces/list",
    )
]
V1_NOWHERE = ["/namespaces/", "/namespaces/drop", "/api/v1", "/api/v1/", "/api/v1/timers"]
REST_ALLOW = {
    "/timers": "GET, HEAD, POST",
    f"/timers/{UNKNOWN_ID}": "DELETE, GET, HEAD, PUT",
    "/health": "GET, HEAD",
    "/healthz": "GET, HEAD",
    "/openapi.json": "GET, HEAD",
    "/docs": "GET, HEAD",
}
REST_NOWHERE = ["/", "/nope", "/timers/a/b", "/namespaces", "/api", "/api/v10", "/Timers"]
METHODS = ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"]


def check(reply: Reply, surface: str, status: int, code: Any) -> None:
    assert reply.status == status
    assert reply.headers["content-type"] == "application/json"
    if surface == "v1":
        assert set(reply.json) == {"error", "message", "details", "timestamp"}
        assert (reply.json["error"], reply.json["details"]) == (code, None)
    else:
        assert set(reply.json) == {"code", "message", "data"}
        assert (reply.json["code"], reply.json["data"]) == (code, None)


@pytest.mark.parametrize("key", [None, "", "wrong", KEY[:-1], KEY + "x", KEY.upper(), "schlüssel"])
async def test_without_the_key_nothing_is_done_or_told(server: Server, key: str | None) -> None:
    for path in [*V1_PATHS, *V1_NOWHERE]:
        for method in ("POST", "GET"):
            check(await server.ask(method, path, key=key), "v1", 401, "UNAUTHORIZED")
    for path in [*REST_ALLOW, *REST_NOWHERE]:
        for method in ("GET", "POST", "PATCH"):
            if not path.startswith("/health"):
                reply = await server.ask(method, path, key=key)
                check(reply, "rest", 401, 4)
                assert reply.json["message"] == "unauthorized"
    await server.ask("POST", "/timers/create", new_timer(), key=key)
    await server.ask("POST", "/timers", new_rest_timer(), key=key)
    assert await server.timers() == []


async def test_the_key_is_asked_for_before_the_body_is_looked_at(server: Server) -> None:
    for path, surface, code in (
        ("/timers/create", "v1", "UNAUTHORIZED"),
        ("/timers", "rest", 4),
    ):
        headers = {"Content-Type": "text/plain"}
        reply = await server.ask("POST", path, b"\xff not json", key=None, headers=headers)
        check(reply, surface, 401, code)
        assert "www-authenticate" in reply.headers


async def test_a_key_that_is_not_ascii_is_only_wrong(server: Server) -> None:
    reply = await server.raw(
        b"GET /timers HTTP/1.1\r\nHost: x\r\nX-API-Key: \xff\xfe\xe2\x98\x83\r\n\r\n"
    )
    assert reply.startswith(b"HTTP/1.1 401 ")


async def test_the_name_of_the_key_header_is_read_in_any_case(server: Server) -> None:
    reply = await server.ask("GET", "/timers", key=None, headers={"x-aPI-kEY": KEY})
    assert reply.status == 200


async def test_blanks_around_the_key_are_no_part_of_it(server: Server) -> None:
    reply = await server.ask("GET", "/timers", key=f"  {KEY} \t ")
    assert reply.status == 200


@pytest.mark.parametrize("path", V1_PATHS)
async def test_v1_is_posted_to_and_nothing_else(server: Server, path: str) -> None:
    for method in METHODS:
        if method != "POST":
            reply = await server.ask(method, path)
            check(reply, "v1", 405, "METHOD_NOT_ALLOWED")
            assert reply.headers["allow"] == "POST"
    head = await server.ask("HEAD", path)
    assert (head.status, head.headers["allow"], head.body) == (405, "POST", b"")


@pytest.mark.parametrize("path", ["/health", "/healthz"])
async def test_health_asks_nobody_for_the_key_whatever_the_method(
    server: Server, path: str
) -> None:
    for key in (None, "wrong"):
        assert (await server.ask("GET", path, key=key)).status == 200
        check(await server.ask("POST", path, key=key), "rest", 405, 2)


@pytest.mark.parametrize("path", REST_ALLOW)
async def test_whatever_can_be_read_has_a_head(server: Server, path: str) -> None:
    full = await server.ask("GET", path)
    head = await server.ask("HEAD", path)
    assert (head.status, head.body) == (full.status, b"")
    assert head.headers["content-length"] == str(len(full.body))


async def test_a_head_asks_for_the_key_too(server: Server) -> None:
    assert (await server.ask("HEAD", "/timers", key=None)).status == 401


@pytest.mark.parametrize(("path", "allow"), REST_ALLOW.items())
async def test_a_wrong_method_is_told_the_right_ones(server: Server, path: str, allow: str) -> None:
    for method in METHODS:
        if method not in allow:
            reply = await server.ask(method, path)
            check(reply, "rest", 405, 2)
            assert reply.headers["allow"] == allow


@pytest.mark.parametrize("path", V1_NOWHERE)
async def test_an_unknown_path_of_v1_is_answered_as_v1(server: Server, path: str) -> None:
    for method in ("GET", "POST"):
        check(await server.ask(method, path), "v1", 404, "NOT_FOUND")


@pytest.mark.parametrize("path", REST_NOWHERE)
async def test_any_other_unknown_path_is_answered_as_rest(server: Server, path: str) -> None:
    for method in ("GET", "POST"):
        check(await server.ask(method, path), "rest", 404, 3)


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
        'application/json ;charset="UTF-8"',
        "application/json;profile=x",
    ],
)
async def test_a_body_declared_as_json_is_taken(server: Server, content_type: str) -> None:
    headers = {"Content-Type": content_type}
    reply = await server.ask("POST", "/timers/create", new_timer(), headers=headers)
    assert reply.status == 200
    reply = await server.ask("POST", "/timers", new_rest_timer(), headers=headers)
    assert reply.status == 201


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "application/jsonp"},
        {"Content-Type": "application/json; charset=latin-1"},
        {"Content-Type": "application/json, text/plain"},
        {"Content-Type": ""},
        {"Content-Encoding": "gzip"},
    ],
)
async def test_a_body_of_another_type_is_refused(server: Server, headers: dict[str, str]) -> None:
    for prefix in ("", "/api/v1"):
        reply = await server.ask("POST", f"{prefix}/timers/create", new_timer(), headers=headers)
        check(reply, "v1", 415, "UNSUPPORTED_MEDIA_TYPE")
    for method, path in (("POST", "/timers"), ("PUT", f"/timers/{UNKNOWN_ID}")):
        check(await server.ask(method, path, new_rest_timer(), headers=headers), "rest", 415, 2)
    assert await server.timers() == []


async def test_a_body_of_no_type_is_refused_and_no_body_is_called_empty(server: Server) -> None:
    head = f"Host: x\r\nX-API-Key: {KEY}\r\nConnection: close\r\n".encode()
    for path, told in ((b"/timers", b'"code":2'), (b"/timers/create", b"UNSUPPORTED_MEDIA_TYPE")):
        start = b"POST " + path + b" HTTP/1.1\r\n" + head
        reply = await server.raw(start + b"Content-Length: 2\r\n\r\n{}")
        assert reply.startswith(b"HTTP/1.1 415 ")
        assert told in reply
        reply = await server.raw(start + b"\r\n")
        assert reply.startswith(b"HTTP/1.1 400 ")
        assert b"the body is empty" in reply
