"""The ASGI application: key, route, body, answer.

Plain ASGI: two dozen fixed paths and one variable one need no framework, and the order of
the checks is part of what is promised. The key comes first, before anything tells a
stranger what exists; then the route; the body last, cut off while it is read. The path
alone decides the surface, and so the shape of every error.
"""

import hmac
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NoReturn

from duetime.http import pages
from duetime.http.codec import Answer
from duetime.http.exchange import Disconnected, Exchange, Receive, Scope, Send
from duetime.http.problems import MethodNotAllowed, RouteNotFound, Unauthorized
from duetime.http.rest_routes import rest_surface
from duetime.http.routes import Request, Route, Surface
from duetime.http.v1_routes import PREFIX, v1_surface
from duetime.service import Service


def create_app(
    service: Service, *, api_key: str, body_bytes_max: int, payload_bytes_max: int
) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    """Both surfaces, their OpenAPI document and its page, on a service."""
    v1 = v1_surface(service, payload_bytes_max=payload_bytes_max)
    rest = rest_surface(service, payload_bytes_max=payload_bytes_max)
    return App(
        v1,
        Surface((*rest.routes, *pages.routes(v1, rest)), rest.problem),
        api_key=api_key.encode(),
        body_bytes_max=body_bytes_max,
    )


class App:
    """Finds out what is asked, by whom, and answers in the surface's shape."""

    def __init__(self, v1: Surface, rest: Surface, *, api_key: bytes, body_bytes_max: int) -> None:
        self._v1 = v1
        self._rest = rest
        self._api_key = api_key
        self._body_bytes_max = body_bytes_max
        self._v1_paths = frozenset(route.path for route in v1.routes)
        self._routes: dict[str, dict[str, Route]] = {}
        for route in (*v1.routes, *rest.routes):
            self._routes.setdefault(route.path, {})[route.method] = route
        for methods in self._routes.values():
            if "GET" in methods:  # HTTP asks it of every server; what is sent has no body then.
                methods["HEAD"] = methods["GET"]
        self._open_paths = frozenset(route.path for route in rest.routes if route.open_to_all)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close"})  # Not accepted: the caller is told 403.
        else:
            exchange = Exchange(scope, receive, send, body_bytes_max=self._body_bytes_max)
            with suppress(Disconnected):  # Then nobody is left to be answered.
                await exchange.answer(await self._answer(scope, exchange))

    async def _answer(self, scope: Scope, exchange: Exchange) -> Answer:
        path: str = scope["path"]
        methods, tail = self._find(path)
        route = None if methods is None else methods.get(scope["method"])
        try:
            if path not in self._open_paths and not self._has_key(exchange):
                return await _turned_away(route, exchange)
            if methods is None or route is None:
                _lost(scope["method"], methods)
            body = b"" if route.takes is None else await exchange.body(route.body_optional)
            return await route.handle(Request(body, tail, scope["query_string"]))
        except Disconnected:
            raise
        except Exception as error:
            return self.problem(path, error, route)

    def problem(self, path: str, error: Exception, route: Route | None = None) -> Answer:
        """The error in the shape of the path's surface."""
        surface = self._v1 if path in self._v1_paths or _is_v1(path) else self._rest
        return surface.problem(error, route)

    def _find(self, path: str) -> tuple[dict[str, Route] | None, str]:
        """What is served under the path, by method, and the path's variable part."""
        methods = self._routes.get(path)
        if methods is None and path.startswith("/timers/") and "/" not in path[8:]:
            return self._routes["/timers/{id}"], path[8:]
        return methods, ""

    def _has_key(self, exchange: Exchange) -> bool:
        key = exchange.headers.get(b"x-api-key")
        # The parser leaves the blanks behind a value, which are no part of it.
        return key is not None and hmac.compare_digest(key.rstrip(b" \t"), self._api_key)


async def _turned_away(route: Route | None, exchange: Exchange) -> Answer:
    if route is not None and route.keyless is not None and exchange.wants_html():
        return await route.keyless(Request())
    raise Unauthorized


def _lost(method: str, methods: dict[str, Route] | None) -> NoReturn:
    if methods is None:
        raise RouteNotFound
    raise MethodNotAllowed(method, ", ".join(sorted(methods)))


def _is_v1(path: str) -> bool:
    return path.startswith(("/namespaces/", PREFIX + "/")) or path == PREFIX


async def _live(receive: Receive, send: Send) -> None:
    """The server's life begins and ends outside of us."""
    while True:
        message = await receive()
        await send({"type": message["type"] + ".complete"})
        if message["type"] == "lifespan.shutdown":
            return
