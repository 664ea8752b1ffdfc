"""Bad input: a clear error in the surface's shape, and nothing stored."""

from typing import Any

import pytest

from tests.http.server import (
    LATER,
    UNKNOWN_ID,
    URL,
    Reply,
    Server,
    new_rest_timer,
    new_timer,
)

DEEP = b"[" * 100_000 + b"]" * 100_000


def check_v1(reply: Reply, status: int, error: str, pointer: str | None) -> None:
    body = reply.json
    assert reply.status == status, body
    assert reply.headers["content-type"] == "application/json"
    assert set(body) == {"error", "message", "details", "timestamp"}
    assert body["error"] == error, body
    assert body["details"] == (None if pointer is None else {"field": pointer}), body
    assert body["timestamp"].endswith("Z")


def check_rest(reply: Reply, status: int, code: int) -> None:
    assert reply.status == status, reply.json
    assert reply.headers["content-type"] == "application/json"
    assert set(reply.json) == {"code", "message", "data"}
    assert (reply.json["code"], reply.json["data"]) == (code, None)


# What is wrong whatever the surface: the field in the core's words, its value.
WRONG: list[tuple[str, Any]] = [
    ("execute_at", None),
    ("execute_at", 1_700_000_000),
    ("execute_at", ""),
    ("execute_at", "tomorrow"),
    ("execute_at", "2099-01-31T09:30:00"),
    ("execute_at", "2099-01-31"),
    ("execute_at", "0000-01-01T00:00:00Z"),
    ("execute_at", "10000-01-01T00:00:00Z"),
    ("execute_at", "9999-12-31T23:59:59.9999Z"),
    ("execute_at", "1969-12-31T23:59:59Z"),
    ("execute_at", "2099-02-30T00:00:00Z"),
    ("execute_at", "2099-01-31T09:30:00+25:00"),
    ("execute_at", "2020-01-01T00:00:00Z"),
    ("execute_at", "٢٠٩٩-01-31T09:30:00Z"),
    ("callback_url", None),
    ("callback_url", 17),
    ("callback_url", ""),
    ("callback_url", "api.example.com/hook"),
    ("callback_url", "ftp://api.example.com/"),
    ("callback_url", "file:///etc/passwd"),
    ("callback_url", "javascript:alert(1)"),
    ("callback_url", "http://"),
    ("callback_url", "http:///path"),
    ("callback_url", "http://api.example.com:99999/"),
    ("callback_url", "http://api.example.com/\r\nX: y"),
    ("callback_url", "http://api.example.com/a b"),
    ("callback_url", "https://api.example.com/" + "x" * (2_049 - 24)),
    ("callback_headers", []),
    ("callback_headers", "X-A: b"),
    ("metadata", "x" * 102_400),
]
# Of headers, the name or the value that HTTP forbids, or that is ours to set.
WRONG_HEADERS: list[tuple[str, Any]] = [
    ("X-A", 1),
    ("X-A", None),
    ("X-A", ["a"]),
    ("X-A", "a\r\nX-B: c"),
    ("X-A", "a\nb"),
    ("X-A", "a\rb"),
    ("X-A", "a\0b"),
    ("X-A\r\nX-B", "c"),
    ("X A", "c"),
    ("X:A", "c"),
    ("X/A~B", "c"),
    ("", "c"),
    ("Ünicode", "c"),
    ("Host", "elsewhere"),
    ("content-length", "0"),
    ("Transfer-Encoding", "chunked"),
    ("Connection", "close"),
]


def camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)


@pytest.mark.parametrize(("field", "value"), WRONG)
async def test_v1_refuses_a_wrong_value_by_its_field(
    server: Server, field: str, value: Any
) -> None:
    name = camel(field)
    reply = await server.v1("timers/create", new_timer(**{name: value}))
    if field == "metadata":
        check_v1(reply, 413, "PAYLOAD_TOO_LARGE", "/metadata")
    else:
        check_v1(reply, 400, "INVALID_INPUT", f"/{name}")
    assert reply.json["message"].startswith(f"{name} ")
    assert await server.timers() == []


@pytest.mark.parametrize(("field", "value"), WRONG)
@pytest.mark.parametrize("method", ["POST", "PUT"])
async def test_rest_refuses_a_wrong_value_by_its_field(
    server: Server, method: str, field: str, value: Any
) -> None:
    path = "/timers"
    if method == "PUT":
        await server.created(UNKNOWN_ID)
        path = f"/timers/{UNKNOWN_ID}"
    before = await server.timers()
    reply = await server.ask(method, path, new_rest_timer(**{field: value}))
    check_rest(reply, 400, 2)
    assert reply.json["message"].startswith(f"{field} ")
    assert await server.timers() == before
    if before:
        assert (await server.shown(UNKNOWN_ID))["executeAt"] == LATER


@pytest.mark.parametrize(("name", "value"), WRONG_HEADERS)
async def test_both_surfaces_refuse_a_header_that_http_forbids(
    server: Server, name: str, value: Any
) -> None:
    reply = await server.v1("timers/create", new_timer(callbackHeaders={"X-Ok": "1", name: value}))
    pointer = "/callbackHeaders/" + name.replace("~", "~0").replace("/", "~1")
    check_v1(reply, 400, "INVALID_INPUT", pointer)
    reply = await server.ask(
        "POST", "/timers", new_rest_timer(callback_headers={"X-Ok": "1", name: value})
    )
    check_rest(reply, 400, 2)
    assert reply.json["message"].startswith(f"callback_headers.{name} ")
    assert await server.timers() == []


@pytest.mark.parametrize("id", ["", "x" * 256, "é" * 256, 17, None, "a\0b"])
async def test_v1_refuses_an_id_that_is_none(server: Server, id: Any) -> None:
    check_v1(await server.v1("timers/create", new_timer(id=id)), 400, "INVALID_INPUT", "/id")
    assert await server.timers() == []


@pytest.mark.parametrize("id", ["x", "x" * 255, "é" * 255, "a/b?c#d %", "🙂", "\n"])
async def test_v1_takes_any_id_of_1_to_255_characters(server: Server, id: str) -> None:
    assert (await server.created(id))["id"] == id
    assert (await server.shown(id))["id"] == id


@pytest.mark.parametrize("field", ["namespace", "id", "executeAt", "callbackUrl"])
async def test_v1_names_a_missing_field(server: Server, field: str) -> None:
    body = new_timer()
    del body[field]
    reply = await server.v1("timers/create", body)
    check_v1(reply, 400, "INVALID_INPUT", f"/{field}")
    assert reply.json["message"] == f"{field} is required"


@pytest.mark.parametrize("field", ["execute_at", "callback_url"])
async def test_rest_names_a_missing_field(server: Server, field: str) -> None:
    body = new_rest_timer()
    del body[field]
    reply = await server.ask("POST", "/timers", body)
    check_rest(reply, 400, 2)
    assert reply.json["message"] == f"{field} is required"


@pytest.mark.parametrize("name", ["callbackurl", "execute_at", "", "a/b~c", "`` - at `$.x`", "é"])
async def test_an_unknown_field_is_refused_by_its_name(server: Server, name: str) -> None:
    pointer = "/" + name.replace("~", "~0").replace("/", "~1")
    reply = await server.v1("timers/create", new_timer(**{name: 1}))
    check_v1(reply, 400, "INVALID_INPUT", pointer)
    assert reply.json["message"] == f"{name} is not a known field"
    name = "executeAt" if name == "execute_at" else name
    for method, path in (("POST", "/timers"), ("PUT", f"/timers/{UNKNOWN_ID}")):
        reply = await server.ask(method, path, new_rest_timer(**{name: 1}))
        check_rest(reply, 400, 2)
        assert reply.json["message"] == f"{name} is not a known field"
    assert await server.timers() == []


async def test_of_a_name_of_a_megabyte_only_a_little_comes_back(server: Server) -> None:
    reply = await server.v1("timers/create", new_timer(**{"x" * 300_000: 1}))
    assert reply.status == 400
    assert len(reply.body) < 3_000
    reply = await server.v1("timers/create", new_timer(namespace="x" * 300_000))
    assert reply.status == 400
    assert len(reply.body) < 3_000


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("namespace", 1),
        ("payload", [1]),
        ("payload", "text"),
        ("payload", 0),
        ("payload", False),
        ("callbackTimeoutSeconds", 0),
        ("callbackTimeoutSeconds", 31),
        ("callbackTimeoutSeconds", -1),
        ("callbackTimeoutSeconds", "30"),
        ("callbackTimeoutSeconds", 1.5),
        ("callbackTimeoutSeconds", True),
        ("callbackTimeoutSeconds", 10**40),
        ("retryPolicy", []),
        ("retryPolicy", "often"),
    ],
)
async def test_v1_refuses_what_only_v1_has(server: Server, field: str, value: Any) -> None:
    reply = await server.v1("timers/create", new_timer(**{field: value}))
    check_v1(reply, 400, "INVALID_INPUT", f"/{field}")
    assert await server.timers() == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("callback_method", "GET"),
        ("callback_method", "post"),
        ("callback_method", 1),
        ("retry_policy", {"max_attempts": 0}),
        ("retry_policy", {"maxAttempts": 3}),
        ("retry_policy", 3),
    ],
)
async def test_rest_refuses_what_only_rest_has(server: Server, field: str, value: Any) -> None:
    reply = await server.ask("POST", "/timers", new_rest_timer(**{field: value}))
    check_rest(reply, 400, 2)
    assert reply.json["message"].startswith(field)
    assert await server.timers() == []


async def test_a_method_that_is_none_is_told_which_there_are(server: Server) -> None:
    reply = await server.ask("POST", "/timers", new_rest_timer(callback_method="GET"))
    assert reply.json["message"] == "callback_method must be PATCH, POST or PUT"


async def test_a_payload_above_its_bound_is_refused_and_one_at_it_is_not(server: Server) -> None:
    largest = {"a": "x" * (102_400 - len('{"a": ""}'))}
    await server.created(payload=largest)
    larger = {"a": largest["a"] + "x"}
    reply = await server.v1("timers/create", new_timer(id="b", payload=larger))
    check_v1(reply, 413, "PAYLOAD_TOO_LARGE", "/payload")
    reply = await server.ask("POST", "/timers", new_rest_timer(callback_payload=larger))
    check_rest(reply, 400, 2)
    assert reply.json["message"].startswith("callback_payload ")
    assert await server.timers() == ["a"]


NO_OBJECT = {
    "empty": b"",
    "blank": b"  \n",
    "no json": b"execute_at=now",
    "byte order mark": b"\xef\xbb\xbf{}",
    "utf-16": '{"a":1}'.encode("utf-16"),
    "array": b"[]",
    "null": b"null",
    "number": b"17",
    "string": b'"text"',
    "comment": b"{/**/}",
    "single quotes": b"{'a':1}",
    "deep": DEEP,
    "deep and cut off": b"[" * 200_000,
    "invalid utf-8 in a name": b'{"\xff": 1}',
}


@pytest.mark.parametrize("body", NO_OBJECT.values(), ids=NO_OBJECT.keys())
async def test_a_body_that_is_no_json_object_is_a_bad_request(server: Server, body: bytes) -> None:
    for operation in ("timers/create", "timers/batch", "timers/get", "namespaces/create"):
        reply = await server.ask("POST", f"/{operation}", body)
        check_v1(reply, 400, "INVALID_INPUT", None)
        assert reply.json["message"].startswith("the body ")
    for method, path in (("POST", "/timers"), ("PUT", f"/timers/{UNKNOWN_ID}")):
        reply = await server.ask(method, path, body)
        check_rest(reply, 400, 2)
        assert reply.json["message"].startswith("the body ")
    assert await server.timers() == []


BROKEN_VALUES = {
    "NaN": b"NaN",
    "Infinity": b"-Infinity",
    "NaN, inside": b'{"a": NaN}',
    "deep": b'{"a": ' + DEEP + b"}",
    "leading zero": b"01",
    "trailing comma": b'{"a":1,}',
    "cut off": b'{"a":',
    "too much": b"{}}",
    "control character": b'{"a": "\x01"}',
    "bad escape": b'{"a": "\\x41"}',
    "lone surrogate": b'{"a": "\\ud800"}',
    "lone second surrogate": b'{"a": "\\udfff"}',
    "swapped surrogates": b'{"a": "\\udc00\\ud800"}',
    "lone surrogate in a name": b'{"\\ud800": 1}',
    "invalid utf-8": b'{"a": "\xff"}',
    "utf-8 cut off": b'{"a": "\xf0\x28"}',
    "utf-8 of a surrogate": b'{"a": "\xed\xa0\x80"}',
    "overlong utf-8": b'{"a": "\xc0\xaf"}',
    "number beyond a double": b"1e999",
    "number beyond a double, inside": b'{"a": [-1e400]}',
    "number of 5,000 digits": b"1" * 5_000,
    "NUL": b"{}\0",
}


@pytest.mark.parametrize("value", BROKEN_VALUES.values(), ids=BROKEN_VALUES.keys())
@pytest.mark.parametrize("field", ["payload", "metadata"])
async def test_what_is_kept_as_received_is_looked_through(
    server: Server, field: str, value: bytes
) -> None:
    v1 = b'{"namespace":"default","id":"a","executeAt":"%s","callbackUrl":"%s","%s":%s}'
    item = v1 % (LATER.encode(), URL.encode(), field.encode(), value)
    reply = await server.ask("POST", "/timers/create", item)
    assert (reply.status, reply.json["error"]) == (400, "INVALID_INPUT")
    reply = await server.ask("POST", "/timers/batch", b'{"timers":[%s]}' % item)
    told = reply.json if reply.status == 400 else reply.json["results"][0]
    assert told["error"] == "INVALID_INPUT"
    name = b"callback_payload" if field == "payload" else b"metadata"
    rest = b'{"execute_at":"%s","callback_url":"%s","%s":%s}'
    reply = await server.ask("POST", "/timers", rest % (LATER.encode(), URL.encode(), name, value))
    check_rest(reply, 400, 2)
    assert await server.timers() == []


@pytest.mark.parametrize(
    "headers",
    [
        b'{"X-A": 1, "X-B": [NaN]}',
        b'{"X-A": 1, X-B": "c"}',
        b'{"X-A": 1, "X-A": "b"}',
        b'{"X-A": 1}, "callbackHeaders": "x"',
        b'{"X-A": 1}, "callbackHeaders": {"X-A": "b"}',
        b'{"X-A": 1, "X-B": ' + DEEP + b"}",
    ],
    ids=["NaN", "cut off", "name twice", "field twice", "field twice, right", "deep"],
)
async def test_a_wrong_header_in_a_body_wrong_beyond_it_is_a_bad_request(
    server: Server, headers: bytes
) -> None:
    rest = headers.replace(b"callbackHeaders", b"callback_headers")
    reply = await server.ask("POST", "/timers", b'{"callback_headers":%s}' % rest)
    check_rest(reply, 400, 2)
    item = b'{"callbackHeaders":%s}' % headers
    assert (await server.ask("POST", "/timers/create", item)).status == 400
    reply = await server.ask("POST", "/timers/batch", b'{"timers":[%s]}' % item)
    assert reply.status == 400 or reply.json["results"][0]["error"] == "INVALID_INPUT"


async def test_of_a_name_given_twice_the_last_counts(server: Server) -> None:
    body = b'{"namespace":"default","id":"a","id":"b","executeAt":"%s","callbackUrl":"%s"}'
    reply = await server.ask("POST", "/timers/create", body % (LATER.encode(), URL.encode()))
    assert (reply.status, reply.json["id"]) == (200, "b")
