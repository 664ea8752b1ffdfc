"""Sets of tables on a DynamoDB for tests, and a way to it that can be made to break."""

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import aiohttp
from aiohttp import web
from scripts.servers import Dynamodb

from duetime.store import Store
from duetime.stores.dynamodb import DynamoStore
from duetime.testing.conformance import Hold

Body = dict[str, Any]
Ask = Callable[[Body], Awaitable[Body]]
Rule = Callable[[Body, Ask], Awaitable[Body]]

_numbers = itertools.count(1)


class DynamoDatabase:
    """One set of tables, and any number of ways to it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def handle(self) -> Store:
        return DynamoStore(self.url)

    def hold(self, store: Store) -> AbstractContextManager[Hold] | None:
        """The fence and the write are one request: so that is stopped on its way."""
        assert isinstance(store, DynamoStore)
        return _held(store)


def new_database(server: Dynamodb) -> DynamoDatabase:
    return DynamoDatabase(server.new_url(f"test_{next(_numbers)}"))


class HoldOnItsWay:
    """Stands in for the driver until it has stopped one transaction."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        self._reached = asyncio.Event()
        self._released = asyncio.Event()

    def __getattr__(self, operation: str) -> Any:
        return getattr(self._driver, operation)

    async def transact_write_items(self, **parameters: Any) -> Any:
        self._reached.set()
        await self._released.wait()
        return await self._driver.transact_write_items(**parameters)

    async def reached(self) -> None:
        async with asyncio.timeout(10):
            await self._reached.wait()

    def release(self) -> None:
        self._released.set()


@contextmanager
def _held(store: DynamoStore) -> Iterator[Hold]:
    driver = store._client._driver
    hold = store._client._driver = HoldOnItsWay(driver)
    try:
        yield hold
    finally:
        hold.release()
        store._client._driver = driver


class Refused(Exception):
    """What DynamoDB would answer instead."""

    def __init__(self, code: str, *, status: int = 400, **fields: Any) -> None:
        self.status = status
        prefix = "com.amazonaws.dynamodb.v20120810#"
        self.body = {"__type": prefix + code, "message": "as the test asked", **fields}


class Lost(Exception):
    """The connection breaks instead of an answer."""


class Proxy:
    """Passes requests on. A rule, by the name of an operation, may do something else instead."""

    def __init__(self, url: str) -> None:
        self._url, _, self._endpoint = url.partition("?endpoint=")
        self.rules: dict[str, Rule] = {}
        self.asked: Counter[str] = Counter()
        self.bytes_max = 0
        self.date: str | None = None
        """What answers say instead of when they were given."""

    async def __aenter__(self) -> "Proxy":
        self._session = aiohttp.ClientSession()
        runner = self._runner = web.ServerRunner(web.Server(self._handle), shutdown_timeout=0)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self._port = runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()
        await self._session.close()

    @property
    def url(self) -> str:
        return f"{self._url}?endpoint=http://127.0.0.1:{self._port}"

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        operation = request.headers["X-Amz-Target"].rpartition(".")[2]
        self.asked[operation] += 1
        text = await request.content.read()  # As long as it may be.
        self.bytes_max = max(self.bytes_max, len(text))
        names = ("X-Amz-Target", "Authorization", "Content-Type", "X-Amz-Date")
        headers = {name: request.headers[name] for name in names}
        seen: dict[str, str] = {}

        async def ask(body: Body) -> Body:
            async with self._session.post(
                self._endpoint, data=json.dumps(body).encode(), headers=headers
            ) as answer:
                found: Body = await answer.json(content_type=None)
                seen["Date"] = self.date or answer.headers["Date"]
                if answer.status != 200:
                    code = found.pop("__type").rpartition("#")[2]
                    raise Refused(code, status=answer.status, **found)
                return found

        async def pass_on(body: Body, ask: Ask) -> Body:
            return await ask(body)

        status = 200
        try:
            answer = await self.rules.get(operation, pass_on)(json.loads(text), ask)
        except Refused as refused:
            status, answer = refused.status, refused.body
        except Lost:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        return web.json_response(answer, status=status, headers=seen)


def refusing(times: int, code: str, *, status: int = 400, **fields: Any) -> Rule:
    """So often that, then as it should be."""
    left = itertools.count(times, -1)

    async def rule(body: Body, ask: Ask) -> Body:
        if next(left) > 0:
            raise Refused(code, status=status, **fields)
        return await ask(body)

    return rule


def losing_answers(times: int, then: Callable[[], Awaitable[Any]] | None = None) -> Rule:
    """So often it happens, something else may happen meanwhile, and nobody hears of it."""
    left = itertools.count(times, -1)

    async def rule(body: Body, ask: Ask) -> Body:
        answer = await ask(body)
        if next(left) > 0:
            if then is not None:
                await then()
            raise Lost
        return answer

    return rule
