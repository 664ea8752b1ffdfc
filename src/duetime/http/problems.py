"""What goes wrong between the socket and the service, and the words for it.

The service speaks of fields in the core's own names; a caller knows only those of its
surface. `Refusal` is an error already put in the caller's words; `refusal` does it for the
core's errors. How a refusal looks on the wire is each surface's own affair.
"""

import logging
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from duetime.errors import InvalidInput, RequestError, StoreError, Unavailable

log = logging.getLogger(__name__)

TEXT_CHARS_MAX = 1_000  # A caller's own text comes back in messages: not megabytes of it.
NAME_CHARS_MAX = 255

Path = tuple[str, ...]
Headers = tuple[tuple[bytes, bytes], ...]


def _clip(text: str, chars_max: int) -> str:
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"


class Refusal(RequestError):
    """The request's shape is wrong: `problem` about the field at `path`, in wire names.

    Without a path, `problem` stands alone.
    """

    def __init__(self, problem: str, path: Path = ()) -> None:
        self.path = tuple(_clip(name, NAME_CHARS_MAX) for name in path)
        text = f"{'.'.join(self.path)} {problem}" if path else problem
        super().__init__(_clip(text, TEXT_CHARS_MAX))

    @property
    def pointer(self) -> str | None:
        """The field as a JSON pointer (RFC 6901)."""
        if not self.path:
            return None
        return "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in self.path)


class Unauthorized(RequestError):
    """The request lacks the key, or has a wrong one."""

    def __init__(self) -> None:
        super().__init__("unauthorized")


class RouteNotFound(RequestError):
    """Nothing is served under this path."""

    def __init__(self) -> None:
        super().__init__("there is nothing at this path")


class MethodNotAllowed(RequestError):
    """The path is right, the method is not."""

    def __init__(self, method: str, allow: str) -> None:
        self.allow = allow
        super().__init__(f"{_clip(method, 20)} is not allowed here; use {allow}")


class HeadTooLarge(RequestError):
    """The request line and headers are above their bounds."""

    def __init__(self) -> None:
        super().__init__("the request line and headers are too large")


class HeadTooSlow(RequestError):
    """The request line and headers did not come in time."""

    def __init__(self) -> None:
        super().__init__("the request line and headers did not arrive in time")


class BodyTooLarge(RequestError):
    """The body is above the server's bound; the rest of it is not read."""

    def __init__(self, size_max: int) -> None:
        super().__init__(f"the body is larger than {size_max} bytes")


class UnsupportedMediaType(RequestError):
    """The body is not declared as JSON in UTF-8."""

    def __init__(self) -> None:
        super().__init__("the body must be sent as Content-Type: application/json, in UTF-8")


def refusal(error: InvalidInput, wire_path: Callable[[str], Path]) -> Refusal:
    """The core's complaint about a field, with the field as `wire_path` calls it."""
    return Refusal(error.problem, () if error.field is None else wire_path(error.field))


class Shown(NamedTuple):
    """What a caller may see of an error, beside the surface's own code for it."""

    message: str
    headers: Headers


def shown(error: Exception) -> Shown:
    """What the caller may see. Whatever is not the caller's to mend is logged here, once."""
    match error:
        case MethodNotAllowed():
            return Shown(str(error), ((b"allow", error.allow.encode()),))
        case Unauthorized():
            return Shown(str(error), ((b"www-authenticate", b'ApiKey header="X-API-Key"'),))
        case Unavailable():
            return Shown(str(error), ((b"retry-after", b"%d" % error.retry_after_s),))
        case RequestError():
            return Shown(_clip(str(error), TEXT_CHARS_MAX), ())
        case StoreError():
            log.error("request failed", extra={"reason": str(error)})
            return Shown("the database is unavailable", ((b"retry-after", b"1"),))
        case _:
            log.error("request failed", exc_info=error)
            return Shown("internal error", ())


R = TypeVar("R")


def look_up(table: dict[type[Exception], R], error: Exception) -> R:
    """The entry of the error's nearest class; `Exception` must have one."""
    return next(table[kind] for kind in type(error).__mro__ if kind in table)
