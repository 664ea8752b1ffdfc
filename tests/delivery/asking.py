"""A client under test, with its promises checked at every call."""

import asyncio
import ssl
import time
from collections.abc import Callable
from functools import cache
from types import TracebackType
from typing import Self

from duetime.callback import parse_url
from duetime.delivery.client import HttpClient
from duetime.delivery.connection import Done
from duetime.delivery.guard import AddressGuard
from duetime.retry import Answer

LATE_S = 0.05


# Reading the system's roots takes longer than most of these tests.
system_roots = cache(ssl.create_default_context)


class Call:
    """One `done`: called at most once, and never from within `send`."""

    def __init__(self) -> None:
        self.sending = True
        self.sent_at = 0.0
        self.answered_at = 0.0
        self.answer: Answer | None = None
        self.answered = asyncio.Event()
        self.then: Done | None = None

    def __call__(self, answer: Answer) -> None:
        assert not self.sending, "answered from within send"
        assert self.answer is None, "answered twice"
        self.answered_at = time.monotonic()
        self.answer = answer
        self.answered.set()
        if self.then is not None:
            self.then(answer)


class Asking:
    """`HttpClient` for tests: requests by URL, answers awaited."""

    def __init__(
        self,
        guard: AddressGuard,
        *,
        ssl_context: ssl.SSLContext | None = None,
        response_bytes_max: int = 65_536,
    ) -> None:
        self.client = HttpClient(
            guard,
            ssl_context=ssl_context or system_roots(),
            response_bytes_max=response_bytes_max,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.client.close()

    def send(
        self,
        url: str,
        body: bytes = b"",
        *,
        timeout_s: float = 5,
        stands: Callable[[], bool] = lambda: True,
    ) -> Call:
        target = parse_url(url)
        request = b"POST %b HTTP/1.1\r\nHost: %b\r\nContent-Length: %d\r\n\r\n%b" % (
            target.path,
            target.host_header,
            len(body),
            body,
        )
        call = Call()
        call.sent_at = time.monotonic()
        self.client.send(target, request, timeout_s, call, stands=stands)
        call.sending = False
        return call

    async def ask(self, url: str, body: bytes = b"", *, timeout_s: float = 5) -> Answer:
        return await self.answer(self.send(url, body, timeout_s=timeout_s))

    async def answer(self, call: Call) -> Answer:
        async with asyncio.timeout(10):
            await call.answered.wait()
        assert call.answer is not None
        return call.answer

    async def error(self, url: str, body: bytes = b"", *, timeout_s: float = 5) -> str:
        """The error of a request that got no answer."""
        answer = await self.ask(url, body, timeout_s=timeout_s)
        assert (answer.status, answer.body) == (0, b"")
        assert answer.error is not None
        return answer.error

    async def expires(self, url: str, timeout_s: float, body: bytes = b"") -> None:
        """Ask, and see the deadline honoured to 50 ms."""
        call = self.send(url, body, timeout_s=timeout_s)
        answer = await self.answer(call)
        assert answer == Answer(0, b"", f"timed out after {timeout_s:g} s")
        assert timeout_s <= call.answered_at - call.sent_at <= timeout_s + LATE_S
