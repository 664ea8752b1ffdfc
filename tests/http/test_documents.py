"""The OpenAPI document, the page that shows it, and docs/api.md: all true of what is served."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from duetime import __version__
from duetime.http import rest, rest_types, v1, v1_types
from tests.http.server import KEY, Server, new_rest_timer
from tests.http.test_admission import V1_PATHS

ROOT = Path(__file__).parents[2]
REST_PATHS = ["/timers", "/timers/{id}", "/health", "/healthz", "/ready"]
CLUSTER_PATHS = ["/api/v1/cluster", "/api/v1/cluster/drain"]
METHODS = {"get", "put", "post", "delete"}


async def document(server: Server) -> Any:
    reply = await server.ask("GET", "/openapi.json")
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    return reply.json


def operations(api: Any) -> Iterator[tuple[str, str, Any]]:
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def nodes(value: Any) -> Iterator[Any]:
    yield value
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, dict | list):
            yield from nodes(inner)


def problems(api: Any, schema: Any, value: Any, at: str = "$") -> Iterator[str]:
    """Where a value does not fit its schema, as far as our schemas go."""
    if "$ref" in schema:
        schema = api["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    if isinstance(value, str):
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
            yield f"{at} is too short or too long"
        if not re.search(schema.get("pattern", ""), value):
            yield f"{at} does not match {schema['pattern']}"
    if isinstance(value, int | float) and not (
        schema.get("minimum", value) <= value <= schema.get("maximum", value)
    ):
        yield f"{at} is too small or too large"
    if "anyOf" in schema:
        if all(list(problems(api, one, value, at)) for one in schema["anyOf"]):
            yield f"{at} fits nothing"
        return
    if "const" in schema and value != schema["const"]:
        yield f"{at} is not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at} is not one of {schema['enum']}"
    kinds = {
        "object": dict,
        "array": list,
        "string": str,
        "integer": int,
        "number": int | float,
        "boolean": bool,
        "null": type(None),
    }
    types = schema.get("type", [])
    wanted = types if isinstance(types, list) else [types]
    if wanted and not any(isinstance(value, kinds[kind]) for kind in wanted):
        yield f"{at} is no {wanted}"
        return
    if isinstance(value, dict):
        yield from (
            f"{at}.{name} is missing" for name in schema.get("required", []) if name not in value
        )
        known = schema.get("properties", {})
        for name, inner in value.items():
            if name in known:
                yield from problems(api, known[name], inner, f"{at}.{name}")
            elif schema.get("additionalProperties") is False:
                yield f"{at}.{name} is unknown"
    if isinstance(value, list):
        for item in value:
            yield from problems(api, schema.get("items", {}), item, f"{at}[]")


async def test_the_document_holds_every_path_and_both_surfaces(server: Server) -> None:
    api = await document(server)
    assert api["openapi"] == "3.1.0"
    assert api["info"]["version"] == __version__
    assert set(api["paths"]) == {*V1_PATHS, *REST_PATHS, *CLUSTER_PATHS}
    assert {method for _, method, _ in operations(api)} <= METHODS


async def test_every_operation_is_complete(server: Server) -> None:
    api = await document(server)
    ids = [operation["operationId"] for _, _, operation in operations(api)]
    assert len(ids) == len(set(ids))
    tags = {tag["name"] for tag in api["tags"]}
    for path, method, operation in operations(api):
        assert operation["summary"]
        assert set(operation["tags"]) <= tags
        assert ("requestBody" in operation) == (method in ("post", "put"))
        named = [one["name"] for one in operation.get("parameters", []) if one["in"] == "path"]
        assert named == re.findall(r"{(\w+)}", path)
        for status, response in operation["responses"].items():
            assert response["description"]
            assert ("content" in response) == (status != "204")


async def test_every_reference_leads_somewhere_and_every_schema_is_used(server: Server) -> None:
    api = await document(server)
    found = {node["$ref"] for node in nodes(api) if isinstance(node, dict) and "$ref" in node}
    assert found == {f"#/components/schemas/{name}" for name in api["components"]["schemas"]}


async def test_everything_but_health_asks_for_the_key(server: Server) -> None:
    api = await document(server)
    assert api["security"] == [{"key": []}]
    scheme = api["components"]["securitySchemes"]["key"]
    assert scheme == {"type": "apiKey", "in": "header", "name": "X-API-Key"}
    open_paths = {path for path, _, told in operations(api) if told.get("security") == []}
    assert open_paths == {"/health", "/healthz", "/ready"}


async def test_every_status_of_both_surfaces_is_told(server: Server) -> None:
    api = await document(server)
    told: dict[bool, set[int]] = {True: set(), False: set()}
    for path, _, operation in operations(api):
        told[path in (*V1_PATHS, *CLUSTER_PATHS)] |= {
            int(status) for status in operation["responses"]
        }
    # An unknown path, a wrong method and what is refused before its path is known belong to none.
    assert told[True] == {200, 204} | {status for status, _ in v1.CODES.values()} - {405, 408, 431}
    assert told[False] == {200, 201} | {status for status, _ in rest.CODES.values()} - {
        405,
        408,
        431,
    }
    error = api["components"]["schemas"]["Error"]["properties"]["error"]
    assert set(error["enum"]) == {code for _, code in v1.CODES.values()}


async def test_an_operation_tells_the_codes_that_it_may_answer_and_no_others(
    server: Server,
) -> None:
    paths = (await document(server))["paths"]

    def codes(path: str, status: int) -> list[str]:
        told: str = paths[path]["post"]["responses"][str(status)]["description"]
        return told.partition(": ")[2].split(", ")

    assert codes("/timers/update", 400) == ["INVALID_INPUT", "UNKNOWN_NAMESPACE"]
    assert codes("/api/v1/timers/update", 404) == ["TIMER_NOT_FOUND"]
    assert codes("/timers/delete", 409) == ["TIMER_EXECUTING"]
    assert codes("/namespaces/create", 409) == ["NAMESPACE_EXISTS"]
    assert codes("/namespaces/update", 400) == ["INVALID_INPUT"]
    assert codes("/namespaces/update", 404) == ["NAMESPACE_NOT_FOUND"]
    assert codes("/api/v1/cluster/drain", 404) == ["NODE_NOT_FOUND"]


async def test_the_document_allows_for_what_the_other_surface_has_made(server: Server) -> None:
    schemas = (await document(server))["components"]["schemas"]
    await server.created("no uuid")
    listed = await server.ask("GET", "/timers")
    assert [timer["id"] for timer in listed.data["timers"]] == ["no uuid"]
    assert "format" not in schemas["TimerSummary"]["properties"]["id"]

    made = await server.ask("POST", "/timers", new_rest_timer(callback_payload="no object"))
    assert (await server.shown(made.data["id"]))["payload"] == "no object"
    assert "type" not in schemas["Timer"]["properties"]["payload"]


async def test_every_example_fits_its_schema(server: Server) -> None:
    api = await document(server)
    checked = 0
    for path, method, operation in operations(api):
        bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
        for body in bodies:
            media = body.get("content", {}).get("application/json", {})
            if "example" in media:
                wrong = list(problems(api, media["schema"], media["example"]))
                assert wrong == [], f"{method} {path}"
                checked += 1
    assert checked >= 40


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        ("/timers/create", {"id": ""}),
        ("/timers/create", {"id": "x" * 256}),
        ("/timers/create", {"callbackUrl": "http://h/" + "x" * 2_040}),
        ("/timers/create", {"callbackTimeoutSeconds": 0}),
        ("/timers/create", {"retryPolicy": {"maxAttempts": 0}}),
        ("/timers/create", {"retryPolicy": {"maxAttempts": 1_000_001}}),
        ("/timers/create", {"retryPolicy": {"maxRetries": -1}}),
        ("/timers/create", {"retryPolicy": {"maxRetries": 1_000_000}}),
        ("/timers/create", {"retryPolicy": {"maxRetryAttemptsDuration": "1"}}),
        ("/timers/create", {"retryPolicy": {"backoffMultiplier": 0.9}}),
        ("/timers/create", {"retryPolicy": {"backoffMultiplier": 1_001}}),
        ("/timers/create", {"retryPolicy": {"maxInterval": "1h30m"}}),
        ("/timers", {"retry_policy": {"max_attempts": 0}}),
        ("/timers", {"retry_policy": {"backoff_multiplier": 0}}),
        ("/namespaces/create", {"name": "a:b"}),
        ("/namespaces/create", {"name": "a#b"}),
        ("/namespaces/create", {"name": "x" * 256}),
        ("/namespaces/create", {"numShards": 0}),
        ("/namespaces/create", {"numShards": 4_097}),
        ("/namespaces/create", {"historyRetentionSeconds": -1}),
        ("/namespaces/create", {"historyRetentionSeconds": 316_224_001}),
        ("/namespaces/create", {"minDelaySeconds": 86_401}),
    ],
)
async def test_the_document_tells_the_bounds_that_are_enforced(
    server: Server, path: str, wrong: dict[str, Any]
) -> None:
    api = await document(server)
    media = api["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    body = {**media["example"], **wrong}
    assert len(list(problems(api, media["schema"], body))) == 1
    assert (await server.ask("POST", path, body)).status == 400


async def test_what_is_served_fits_the_document(server: Server) -> None:
    api = await document(server)

    def fits(path: str, method: str, reply: Any) -> None:
        answer = api["paths"][path][method]["responses"][str(reply.status)]
        wrong = list(problems(api, answer["content"]["application/json"]["schema"], reply.json))
        assert wrong == []

    for path, method, operation in operations(api):
        if "{id}" in path or method == "head" or path.endswith("delete"):
            continue
        body = operation.get("requestBody")
        example = body["content"]["application/json"]["example"] if body else None
        fits(path, method, await server.ask(method.upper(), path, example))
        if body:
            fits(path, method, await server.ask(method.upper(), path, {"nonsense": 1}))
        if "health" not in path:
            fits(path, method, await server.ask(method.upper(), path, example, key=None))

    listed = await server.ask("GET", "/timers?sort=created_at&order=asc")
    own = next(timer["id"] for timer in listed.data["timers"] if timer["id"].count("-") == 4)
    for method in ("get", "put", "delete"):
        change = {"metadata": [1]} if method == "put" else None
        fits("/timers/{id}", method, await server.ask(method.upper(), f"/timers/{own}", change))
        fits("/timers/{id}", method, await server.ask(method.upper(), "/timers/17", change))


async def test_the_page_is_one_file_that_runs_nothing_but_its_own_script(server: Server) -> None:
    reply = await server.ask("GET", "/docs")
    assert (reply.status, reply.headers["content-type"]) == (200, "text/html; charset=utf-8")
    page = reply.body.decode()
    assert not re.search(r"https?://|src=|@import|innerHTML|\bon\w+=", page)
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "prefers-color-scheme: dark" in page


async def test_a_browser_without_the_key_gets_the_page_that_asks_for_it(server: Server) -> None:
    page = (await server.ask("GET", "/docs")).body
    headers = {"Accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"}
    reply = await server.ask("GET", "/docs", key=None, headers=headers)
    assert (reply.status, reply.body) == (401, page)
    assert KEY not in page.decode()
    for path, accept in (("/docs", "*/*"), ("/openapi.json", "text/html"), ("/", "text/html")):
        reply = await server.ask("GET", path, key=None, headers={"Accept": accept})
        assert (reply.status, reply.json["code"]) == (401, 4)


def test_the_reference_names_every_path_code_and_field() -> None:
    text = (ROOT / "docs" / "api.md").read_text()
    for path in (*V1_PATHS[:10], *REST_PATHS, *CLUSTER_PATHS, "/openapi.json", "/docs"):
        assert f"`{path}`" in text or f" {path}`" in text, path
    for _, code in v1.CODES.values():
        assert f"`{code}`" in text, code
    taken: list[type[msgspec.Struct]] = [
        v1_types.CreateTimerRequest,
        v1_types.UpdateTimerRequest,
        v1_types.ListTimersRequest,
        v1_types.CreateNamespaceRequest,
        v1_types.RetryPolicyInput,
        v1_types.Timer,
        rest_types.NewTimer,
        rest_types.TimerDetails,
    ]
    for type_ in taken:
        for field in msgspec.structs.fields(type_):
            assert f"`{field.encode_name}`" in text, field.encode_name
