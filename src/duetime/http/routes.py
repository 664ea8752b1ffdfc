"""What the application serves, as data: it routes by these, and OpenAPI is made of them."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from msgspec import Struct

from duetime.http.codec import Answer


class Request(NamedTuple):
    """What a handler needs of a request. `tail` is the path's variable last part."""

    body: bytes = b""
    tail: str = ""
    query: bytes = b""


Handler = Callable[[Request], Awaitable[Answer]]


class Route(Struct, frozen=True, kw_only=True):
    """One operation under one path. A path that ends in `{id}` takes any last segment."""

    method: str
    path: str
    handle: Handler
    summary: str
    status: int = 200
    takes: Any = None
    """The type of the body; None where there is none."""
    body_optional: bool = False
    query: tuple[dict[str, Any], ...] = ()
    """OpenAPI's own parameter objects."""
    gives: Any = None
    """The type of the answer, within the surface's envelope; None where there is no body."""
    message: str = "success"
    """The envelope's message, on the surface that has one."""
    errors: tuple[int, ...] = ()
    """Statuses it may answer beyond those that every operation may."""
    examples: tuple[Any, Any] = (None, None)
    """Of the body and of the answer."""
    id_field: str = "id"
    """What the core's `id` is called in this operation's body."""
    open_to_all: bool = False
    """Whether it is served without the key."""
    unwell: tuple[int, str] | None = None
    """Status and message of the same answer when it is not good news."""
    keyless: Handler | None = None
    """What a browser is answered in place of the bare 401: a page that asks for the key."""
    verb: str = "change"
    """What is not possible when the timer's status forbids it."""


class Surface(Struct, frozen=True):
    """A set of routes with one shape for everything that goes wrong on them."""

    routes: tuple[Route, ...]
    problem: Callable[[Exception, Route | None], Answer]
    """The error in the surface's shape. What is not ours becomes an internal error."""
