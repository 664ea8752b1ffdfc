"""Requests to one DynamoDB: bounded, sent again where that is safe, their errors the store's."""

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from itertools import islice
from typing import Any, TypeVar

from aiobotocore.config import AioConfig
from aiobotocore.session import get_session

from duetime.errors import StoreUnavailable
from duetime.stores.dynamodb.errors import DRIVER_ERRORS, FAILED, is_passing, reasons, translated
from duetime.stores.dynamodb.url import Address

log = logging.getLogger(__name__)
T = TypeVar("T")
Item = dict[str, dict[str, str]]
Action = dict[str, dict[str, Any]]

TRIES = 8
WAIT_S_MIN, WAIT_S_MAX = 0.025, 1.0
CONNECT_S_MAX = 3
ANSWER_S_MAX = 5
GETS_MAX, DELETES_MAX = 100, 25  # In one request, as DynamoDB allows.
ITEMS_MAX = 500  # In one page: to read as many takes 30 ms, in which nothing fires.
SHARD_GB_MAX = 10
ROOM_GB_MIN = 2  # A shard with less of its 10 GB left is worth a warning.


class Client:
    """Beyond `pool_size` requests at once, the rest waits for one of them to end."""

    def __init__(self, address: Address, *, chance: Callable[[], float]) -> None:
        self.name = address.name
        self._address = address
        self._chance = chance
        self._slots = asyncio.Semaphore(address.pool_size)
        self._stack = AsyncExitStack()
        self._driver: Any = None
        self._is_open = False
        self._calls = 0
        self._idle = asyncio.Event()
        self._warned: set[str] = set()

    async def open(self) -> None:
        """Nothing is connected to before it is needed."""
        address = self._address
        config = AioConfig(
            connect_timeout=CONNECT_S_MAX,
            read_timeout=min(ANSWER_S_MAX, address.timeout_s),
            max_pool_connections=address.pool_size,
            retries={"total_max_attempts": 1},  # `ask` knows better what is safe.
            parameter_validation=False,  # Ours are built here; it would cost more than all else.
        )
        try:
            self._driver = await self._stack.enter_async_context(
                get_session().create_client(
                    "dynamodb",
                    region_name=address.region,
                    endpoint_url=address.endpoint,
                    aws_access_key_id=address.key,
                    aws_secret_access_key=address.secret,
                    config=config,
                )
            )
        except DRIVER_ERRORS as error:
            raise translated(error, self.name) from error
        self._is_open = True

    async def close(self) -> None:
        """Calls under way are finished first."""
        self._is_open = False
        while self._calls:
            self._idle.clear()
            await self._idle.wait()
        await self._stack.aclose()

    @contextmanager
    def call(self) -> Iterator[None]:
        """What a call of the store stands in, whole: it is finished before `close` returns."""
        if not self._is_open:
            raise StoreUnavailable(f"{self.name}: the store is not open")
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            self._idle.set()

    async def ask(self, operation: str, **parameters: Any) -> dict[str, Any]:
        """Its answer. What passes by is waited for, and the request sent again, within bounds."""
        try:
            return await self._ask(operation, parameters)
        except DRIVER_ERRORS as error:
            raise translated(error, self.name) from error

    async def wait(self, tries: int) -> None:
        """Longer the more tries there were; and not as long as others who wait."""
        await asyncio.sleep(min(WAIT_S_MAX, WAIT_S_MIN * 2**tries) * self._chance())

    async def transact(self, actions: Sequence[Action]) -> frozenset[int]:
        """Do all of them at once; or none, and answer the numbers of those that forbade it."""
        try:
            answer = await self._ask(
                "transact_write_items",
                {
                    "TransactItems": actions,
                    "ClientRequestToken": secrets.token_hex(16),
                    "ReturnItemCollectionMetrics": "SIZE",
                },
            )
        except DRIVER_ERRORS as error:
            failed = {number for number, it in enumerate(reasons(error)) if it == FAILED}
            if not failed:
                raise translated(error, self.name) from error
            return frozenset(failed)
        self._watch_sizes(answer)
        return frozenset()

    async def items(self, table: str, keys: Iterable[Item]) -> list[Item]:
        """Those of the keys that there are, in any order. No key may be there twice."""
        found: list[Item] = []

        async def ask(left: list[Item]) -> None:
            tries = 0
            while left:
                wanted = {table: {"Keys": left, "ConsistentRead": True}}
                answer = await self.ask("batch_get_item", RequestItems=wanted)
                found.extend(answer["Responses"].get(table, []))
                rest = answer["UnprocessedKeys"].get(table, {}).get("Keys", [])
                tries = await self._after(rest, left, tries)
                left = rest

        await side_by_side(ask(part) for part in groups(keys, GETS_MAX))
        return found

    async def delete(self, table: str, keys: Iterable[Item]) -> None:
        """Delete them; what is gone is no error."""

        async def ask(left: list[Any]) -> None:
            tries = 0
            while left:
                answer = await self.ask("batch_write_item", RequestItems={table: left})
                rest = answer["UnprocessedItems"].get(table, [])
                tries = await self._after(rest, left, tries)
                left = rest

        requests = ({"DeleteRequest": {"Key": key}} for key in keys)
        await side_by_side(ask(part) for part in groups(requests, DELETES_MAX))

    async def walk(self, take: Callable[[list[Item], bool], bool], **query: Any) -> None:
        """Hand over page after page, of 1 MB at most, and whether there may be more; until there
        is none, or `take` says that it wants no more."""
        wanted = True
        while wanted:
            answer = await self.ask("query", **query)
            query["ExclusiveStartKey"] = answer.get("LastEvaluatedKey")
            more = bool(query["ExclusiveStartKey"])
            wanted = take(answer["Items"], more) and more

    async def _ask(self, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
        tries = 0
        async with asyncio.timeout(self._address.timeout_s):
            while True:
                try:
                    async with self._slots:
                        request = getattr(self._driver, operation)(**parameters)
                        answer: dict[str, Any] = await request
                        return answer
                except DRIVER_ERRORS as error:
                    tries += 1
                    if tries == TRIES or not is_passing(error):
                        raise
                await self.wait(tries)

    async def _after(self, rest: list[Any], asked: list[Any], tries: int) -> int:
        """Before what was left undone is asked for again; the tries that got nowhere so far."""
        if len(rest) < len(asked):
            return 0
        if tries == TRIES:
            raise StoreUnavailable(f"{self.name}: it is throttled")
        await self.wait(tries)
        return tries + 1

    def _watch_sizes(self, answer: dict[str, Any]) -> None:
        for metrics in answer.get("ItemCollectionMetrics", {}).values():
            for metric in metrics:
                shard = metric["ItemCollectionKey"]["shard_id"]["N"]
                size_gb = metric["SizeEstimateRangeGB"][1]
                if size_gb > SHARD_GB_MAX - ROOM_GB_MIN and shard not in self._warned:
                    self._warned.add(shard)
                    log.warning(
                        "shard is nearly full",
                        extra={"shard": shard, "gb": size_gb, "gb_max": SHARD_GB_MAX},
                    )


async def side_by_side(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The answers of all. When one of them has failed, the others are finished first."""
    answers = await asyncio.gather(*calls, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return answers  # type: ignore[return-value]  # What is no answer was raised.


def groups(values: Iterable[T], size: int) -> Iterator[list[T]]:
    """So many at a time."""
    rest = iter(values)
    while group := list(islice(rest, size)):
        yield group
