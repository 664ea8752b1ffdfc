"""A running server as the tests see it: its port, its callbacks, and a client for it."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import uvicorn

from duetime.instants import format_instant
from duetime.node import Node
from duetime.retry import Answer
from duetime.writes import Attempt

KEY = "a-key-of-at-least-thirty-two-characters"
URL = "https://api.example.com/webhook"
LATER = "2099-01-31T09:30:00.000Z"
UNKNOWN_ID = "550e8400-e29b-41d4-a716-446655440000"
BODY_BYTES_MAX = 400_000


class HeldCarrier:
    """Callbacks that stay under way until the test answers them."""

    def __init__(self) -> None:
        self._sent: asyncio.Queue[Attempt] = asyncio.Queue()

    def destination(self, url: str) -> str:
        return url

    def send(self, attempt: Attempt) -> None:
        self._sent.put_nowait(attempt)

    async def close(self) -> None:
        pass

    async def attempt(self) -> Attempt:
        """The next callback that is under way."""
        return await asyncio.wait_for(self._sent.get(), 10)


@dataclass
class Reply:
    """What came back from the server."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def data(self) -> Any:
        """The data of a REST answer that must be a success."""
        assert self.json["code"] == 0, self.json
        return self.json["data"]


class Server:
    """A server on a port of its own, and a client that hides nothing."""

    def __init__(
        self, node: Node, carrier: HeldCarrier, listening: uvicorn.Server, stops: asyncio.Event
    ) -> None:
        self.node = node
        self.stops = stops
        """To be set when it is about to stop."""
        self.carrier = carrier
        self.listening = listening
        self.port: int = listening.servers[0].sockets[0].getsockname()[1]

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def raw(self, data: bytes) -> bytes:
        """Send bytes as they are, say that there are no more, and read until the end."""
        reader, writer = await self.connect()
        try:
            writer.write(data)
            writer.write_eof()
            return await asyncio.wait_for(reader.read(), 10)
        finally:
            writer.close()

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        key: str | None = KEY,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """One request on a connection of its own; `body` is JSON to be, or bytes as they are."""
        fields = {"Host": "duetime.test", "Connection": "close"}
        data = b""
        if body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            fields |= {"Content-Type": "application/json", "Content-Length": str(len(data))}
        if key is not None:
            fields["X-API-Key"] = key
        fields |= headers or {}
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {fields[name]}" for name in fields)]
        reader, writer = await self.connect()
        try:
            writer.write("\r\n".join([*lines, "", ""]).encode() + data)
            return await asyncio.wait_for(read_reply(reader, bodiless=method == "HEAD"), 10)
        finally:
            writer.close()

    async def v1(self, operation: str, body: Any) -> Reply:
        return await self.ask("POST", f"/{operation}", body)

    async def created(self, id: str = "a", **fields: Any) -> Any:
        """A V1 timer that was created, as it was answered."""
        reply = await self.v1("timers/create", new_timer(id=id, **fields))
        assert reply.status == 200, reply.json
        return reply.json

    async def executing(self, id: str = "a", **fields: Any) -> Attempt:
        """A V1 timer whose callback is under way."""
        await self.created(id, executeAt=self.soon(), **fields)
        return await self.carrier.attempt()

    async def ended(self, id: str, *, status: int) -> None:
        """A V1 timer whose callback was answered with this HTTP status, its outcome durable."""
        attempt = await self.executing(id)
        attempt.answered(
            Answer(status, b'{"ok":true}', None if status == 200 else f"HTTP {status}")
        )
        async with asyncio.timeout(10):
            while (await self.shown(id))["status"] == "executing":
                await asyncio.sleep(0.001)

    async def shown(self, id: str) -> Any:
        reply = await self.v1("timers/get", {"namespace": "default", "timerId": id})
        assert reply.status == 200, reply.json
        return reply.json

    def soon(self) -> str:
        return format_instant(self.node.clock.now() + 250)

    async def timers(self) -> list[str]:
        """The ids of all timers there are."""
        found = await self.v1("timers/list", {"namespace": "default", "limit": 200})
        return [timer["id"] for timer in found.json["timers"]]


async def read_reply(reader: asyncio.StreamReader, *, bodiless: bool = False) -> Reply:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    status_line, *lines = head.rstrip().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    length = 0 if bodiless else int(headers.get("content-length", 0))
    return Reply(int(status_line.split(" ")[1]), headers, await reader.readexactly(length))


def new_timer(**fields: Any) -> dict[str, Any]:
    """The body of a V1 create."""
    timer = {"namespace": "default", "id": "a", "executeAt": LATER, "callbackUrl": URL}
    return {**timer, **fields}


def new_rest_timer(**fields: Any) -> dict[str, Any]:
    """The body of a REST create."""
    return {"execute_at": LATER, "callback_url": URL, **fields}
