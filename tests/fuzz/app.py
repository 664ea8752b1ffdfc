"""The application in this process, on the memory store, asked without a socket."""

import asyncio
import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from duetime.config import Config
from duetime.http import create_app
from duetime.node import Node
from duetime.stores.memory import MemoryStore
from tests.http.server import BODY_BYTES_MAX, KEY, HeldCarrier

V1 = {"error", "message", "details", "timestamp"}
REST = {"code", "message", "data"}
V1_NAMES = ("create", "get", "update", "delete", "list", "batch")
V1_PATHS = frozenset(f"/timers/{name}" for name in V1_NAMES)


class Reply(NamedTuple):
    status: int
    headers: dict[bytes, bytes]
    body: bytes


class Application:
    """Asked from outside of its loop, one request after the other."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self.runner = runner
        config = Config(database_url="memory:", api_key=KEY, min_delay_s=0, drain_timeout_s=0)
        self.node = Node(config, MemoryStore(), HeldCarrier())
        runner.run(self.node.start())
        self.app = create_app(
            self.node.service,
            api_key=KEY,
            body_bytes_max=BODY_BYTES_MAX,
            payload_bytes_max=config.payload_bytes_max,
        )

    def close(self) -> None:
        self.runner.run(self.node.stop())

    def ask(
        self,
        method: str,
        path: str,
        parts: Iterable[bytes] = (),
        *,
        query: bytes = b"",
        headers: Iterable[tuple[bytes, bytes]] = (),
    ) -> Reply:
        """One request that carries the key, its body in these parts."""
        return self.runner.run(self._ask(method, path, list(parts), query, list(headers)))

    async def _ask(
        self,
        method: str,
        path: str,
        parts: list[bytes],
        query: bytes,
        headers: list[tuple[bytes, bytes]],
    ) -> Reply:
        sent: list[dict[str, Any]] = []
        left = parts or [b""]

        async def receive() -> dict[str, Any]:
            if not left:
                return {"type": "http.disconnect"}
            body = left.pop(0)
            return {"type": "http.request", "body": body, "more_body": bool(left)}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query,
            "headers": [
                (b"x-api-key", KEY.encode()),
                (b"content-type", b"application/json"),
                (b"content-length", b"%d" % sum(map(len, parts))),
                *headers,
            ],
        }
        async with asyncio.timeout(10):
            await self.app(scope, receive, send)
        start, *bodies = sent
        body = b"".join(message["body"] for message in bodies)
        return Reply(start["status"], dict(start["headers"]), body)


def check(path: str, reply: Reply) -> None:
    """It is no accident, and it has its surface's shape."""
    assert reply.status < 500, reply
    if reply.status == 204:
        assert reply.body == b""
        return
    assert int(reply.headers[b"content-length"]) == len(reply.body)
    answer = json.loads(reply.body)
    is_v1 = path in V1_PATHS or path.startswith(("/namespaces/", "/api/v1/")) or path == "/api/v1"
    if not is_v1:
        assert set(answer) == REST
        assert (answer["code"] == 0) == (reply.status < 300)
    elif reply.status >= 300:
        assert set(answer) == V1
