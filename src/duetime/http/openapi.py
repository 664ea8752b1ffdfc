"""The OpenAPI 3.1 document of both surfaces, made of the routes and of their own types."""

from collections.abc import Iterable
from typing import Any

import msgspec

from duetime import __version__
from duetime.http import rest, v1, v1_types
from duetime.http.problems import RouteNotFound
from duetime.http.routes import Route
from duetime.http.v1_routes import PREFIX

Json = dict[str, Any]

_ABOUT = """\
Duetime calls you back at a time you name, whatever happens in between.

Two surfaces over one engine. **V1** is everything: namespaces, ids of your own, retry
policies, callbacks that answer a verdict. **REST** is the simple one: timers in the namespace
`default`, under ids that the server makes. The path alone decides which surface answers, and
so the shape of every error: V1 `{error, message, details, timestamp}`, REST
`{code, message, data}`. An unknown path is 404, a wrong method 405 with `Allow`.

Instants are RFC 3339 with a zone; answers are in UTC with milliseconds. A field that is not
known is refused by its name.
"""
_STATUSES = {
    400: "The request is wrong; the message says where.",
    401: "The key is missing or wrong.",
    404: "There is no such thing.",
    409: "It cannot be done in this state.",
    413: "The body or the payload is too large.",
    415: "The body is not declared as JSON in UTF-8.",
    500: "Something unexpected; the server's log says what.",
    503: "Not now; try again after `Retry-After` seconds.",
}
_ALWAYS = (400, 401, 500, 503)
_WITH_BODY = (413, 415)
_REST_CODES = dict(rest.CODES.values())
_V1_NO_ROUTE = v1.CODES[RouteNotFound][1]
# How the codes begin that only operations on one kind of thing answer.
_V1_CODES_OF = {
    "NAMESPACE_": "/namespaces/",
    "NODE_": "/cluster/",
    "TIMER_": "/timers/",
    "UNKNOWN_NAMESPACE": "/timers/",
}


def document(v1_routes: Iterable[Route], rest_routes: Iterable[Route]) -> Json:
    """The whole document."""
    v1_routes, rest_routes = tuple(v1_routes), tuple(rest_routes)
    types = [
        type_
        for route in (*v1_routes, *rest_routes)
        for type_ in (route.takes, route.gives)
        if type_ is not None
    ]
    types.append(v1_types.Error)
    _, schemas = msgspec.json.schema_components(types, ref_template=_REF + "{name}")
    schemas = dict(sorted(schemas.items()))
    schemas["Error"]["properties"]["error"]["enum"] = sorted({c for _, c in v1.CODES.values()})
    schemas["RestError"] = _envelope({"enum": [1, 2, 3, 4]}, {"type": "null"})
    paths: Json = {}
    for route in v1_routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _v1_operation(route)
    for route in rest_routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _rest_operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Duetime", "version": __version__, "description": _ABOUT},
        "servers": [{"url": "/"}],
        "security": [{"key": []}],
        "tags": [
            {"name": "V1", "description": "Everything Duetime can do."},
            {"name": "REST", "description": "The simple surface, on the namespace `default`."},
            {"name": "Cluster", "description": "The nodes, for people and their tools."},
            {"name": "V1 under /api/v1", "description": "The same operations again."},
        ],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-API-Key"}},
        },
    }


_REF = "#/components/schemas/"


def _v1_operation(route: Route) -> Json:
    responses: Json = {str(route.status): _answered(route, _ref(route.gives), route.examples[1])}
    for status in _error_statuses(route):
        codes = ", ".join(_v1_codes(route, status))
        responses[str(status)] = _failed(status, _ref(v1_types.Error), f": {codes}")
    return _operation(route, _v1_tag(route.path), responses)


def _v1_codes(route: Route, status: int) -> list[str]:
    """The codes that the operation may answer with the status."""
    foreign = tuple(start for start, place in _V1_CODES_OF.items() if place not in route.path)
    codes = {code for at, code in v1.CODES.values() if at == status} - {_V1_NO_ROUTE}
    return sorted(code for code in codes if not code.startswith(foreign))


def _v1_tag(path: str) -> str:
    if path.startswith(PREFIX + "/cluster"):
        return "Cluster"
    return "V1 under /api/v1" if path.startswith(PREFIX) else "V1"


def _rest_operation(route: Route) -> Json:
    example = {"code": 0, "message": route.message, "data": route.examples[1]}
    schema = _envelope({"const": 0}, _ref(route.gives), message={"const": route.message})
    responses: Json = {str(route.status): _answered(route, schema, example)}
    if route.unwell is not None:
        status, message = route.unwell
        unwell = _envelope({"const": 1}, _ref(route.gives), message={"examples": [message]})
        responses[str(status)] = _failed(status, unwell)
        return {**_operation(route, "REST", responses), "security": []}
    for status in _error_statuses(route):
        responses[str(status)] = _failed(
            status, _ref_to("RestError"), f"; code {_REST_CODES[status]}"
        )
    return _operation(route, "REST", responses)


def _operation(route: Route, tag: str, responses: Json) -> Json:
    operation: Json = {
        "operationId": _operation_id(route),
        "summary": route.summary,
        "tags": [tag],
        "responses": responses,
    }
    parameters = list(route.query)
    if route.path.endswith("{id}"):
        schema = {"type": "string", "format": "uuid"}
        parameters.insert(0, {"name": "id", "in": "path", "required": True, "schema": schema})
    if parameters:
        operation["parameters"] = parameters
    if route.takes is not None:
        operation["requestBody"] = {
            "required": not route.body_optional,
            "content": _json(_ref(route.takes), route.examples[0]),
        }
    return operation


def _operation_id(route: Route) -> str:
    words = [word.strip("{}") for word in route.path.split("/") if word]
    return "_".join([*words, route.method.lower()])


def _error_statuses(route: Route) -> list[int]:
    with_body = () if route.takes is None else _WITH_BODY
    return sorted({*_ALWAYS, *with_body, *route.errors})


def _answered(route: Route, schema: Json, example: Any) -> Json:
    answered: Json = {"description": "Done."}
    if route.gives is not None:
        answered["content"] = _json(schema, example)
    return answered


def _failed(status: int, schema: Json, more: str = "") -> Json:
    failed: Json = {"description": _STATUSES[status] + more, "content": _json(schema)}
    if status == 503:
        failed["headers"] = {"Retry-After": {"schema": {"type": "integer"}}}
    return failed


def _json(schema: Json, example: Any = None) -> Json:
    media: Json = {"schema": schema}
    if example is not None:
        media["example"] = example
    return {"application/json": media}


def _envelope(code: Json, data: Json, message: Json | None = None) -> Json:
    return {
        "type": "object",
        "required": ["code", "message", "data"],
        "properties": {"code": code, "message": message or {"type": "string"}, "data": data},
    }


def _ref(type_: Any) -> Json:
    return {} if type_ is None else _ref_to(type_.__name__)


def _ref_to(name: str) -> Json:
    return {"$ref": _REF + name}
