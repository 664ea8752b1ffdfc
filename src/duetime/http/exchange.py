"""One request and its answer on a connection: the body under its bound, the end of it all."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from duetime.http.codec import Answer
from duetime.http.problems import BodyTooLarge, Refusal, UnsupportedMediaType

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

BODY_TIMEOUT_S = 30
# When an answer goes out before its request's body came in, so little of it is read and
# forgotten, and the connection can be used again; with more to come it is closed.
LEFTOVER_BYTES_MAX = 65_536
# To close with bytes unread is to reset the connection, and the answer may be lost with it.
# So the sender has this long, and this much, to notice the answer and stop. Many clients do not
# look before all is sent; to forget 64 MiB of it takes 40 ms.
LINGER_S = 2.0
LINGER_BYTES_MAX = 268_435_456


class Disconnected(Exception):
    """The caller has gone before its request was complete."""


class Exchange:
    """Reads the body at most once, never beyond its bound, and answers once."""

    __slots__ = ("_body_bytes_max", "_receive", "_send", "_unread", "headers")

    def __init__(self, scope: Scope, receive: Receive, send: Send, *, body_bytes_max: int) -> None:
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self._receive = receive
        self._send = send
        self._body_bytes_max = body_bytes_max
        self._unread = self._declared()

    def _declared(self) -> float:
        """How many bytes of body are announced; infinitely many when it comes in chunks."""
        if b"transfer-encoding" in self.headers:
            return float("inf")
        return int(self.headers.get(b"content-length", b"0"))

    def wants_html(self) -> bool:
        return b"text/html" in self.headers.get(b"accept", b"")

    async def body(self, optional: bool = False) -> bytes:
        """The whole body, which must be declared as JSON; may be absent where `optional`."""
        if self._unread == 0 and optional:
            return b""
        content_type = self.headers.get(b"content-type")
        # An empty body of no type is told that it is empty, not that its type is wrong.
        if content_type is None and self._unread == 0:
            return b""
        if content_type != b"application/json" and not _is_json(content_type):
            raise UnsupportedMediaType
        if b"content-encoding" in self.headers:
            raise UnsupportedMediaType
        if self._unread != float("inf") and self._unread > self._body_bytes_max:
            raise BodyTooLarge(self._body_bytes_max)
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                return await self._read()
        except TimeoutError:
            self._unread = float("inf")
            raise Refusal(f"the body did not arrive within {BODY_TIMEOUT_S} s") from None

    async def _read(self) -> bytes:
        message = await self._part()
        first: bytes = message.get("body", b"")
        if len(first) > self._body_bytes_max:
            raise BodyTooLarge(self._body_bytes_max)
        if not message.get("more_body", False):
            self._unread = 0
            return first
        parts = bytearray(first)
        while message.get("more_body", False):
            message = await self._part()
            parts += message.get("body", b"")
            if len(parts) > self._body_bytes_max:
                raise BodyTooLarge(self._body_bytes_max)
        self._unread = 0
        return bytes(parts)

    async def _part(self) -> dict[str, Any]:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        return message

    async def answer(self, answer: Answer) -> None:
        closes = self._unread > LEFTOVER_BYTES_MAX
        headers = list(answer.headers)
        if answer.status != 204:  # HTTP allows a 204 neither.
            headers.append((b"content-type", answer.content_type))
            headers.append((b"content-length", b"%d" % len(answer.body)))
        if closes:
            headers.append((b"connection", b"close"))
        await self._send(
            {"type": "http.response.start", "status": answer.status, "headers": headers}
        )
        await self._send({"type": "http.response.body", "body": answer.body, "more_body": closes})
        if closes:
            await self._linger()
            await self._send({"type": "http.response.body", "body": b""})

    async def _linger(self) -> None:
        left = LINGER_BYTES_MAX
        with suppress(TimeoutError, Disconnected):
            async with asyncio.timeout(LINGER_S):
                more = True
                while more and left > 0:
                    message = await self._part()
                    left -= len(message.get("body", b""))
                    more = message.get("more_body", False)


def _is_json(content_type: bytes | None) -> bool:
    if content_type is None:
        return False
    kind, *parameters = content_type.decode("latin-1").lower().split(";")
    if kind.strip() != "application/json":
        return False
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "charset" and value.strip().strip('"') not in ("utf-8", "utf8"):
            return False
    return True
