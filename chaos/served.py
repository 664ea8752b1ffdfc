"""What clients and accounts need of a world, be it one server or a cluster."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

import aiohttp
from tests.acceptance.processes import KEY

from chaos.account import ATTEMPTS_MAX
from chaos.ledger import Found, Record
from chaos.receiver import ReceiverProcess
from duetime.clock import SystemClock

NAMESPACES: dict[str, dict[str, object]] = {
    "default": {"minDelaySeconds": 0},
    "billing": {
        "numShards": 4,
        "minDelaySeconds": 0,
        "retryPolicy": {"maxAttempts": ATTEMPTS_MAX, "initialInterval": "100ms"},
    },
    "forgetful": {"numShards": 2, "minDelaySeconds": 0, "historyRetentionSeconds": 0},
}
FORGETFUL = frozenset({"forgetful"})
SETTLE_S_MAX = 90.0
POLL_S = 0.25
LIST_PAGE = 200

_clock = SystemClock()


def now() -> int:
    """Real time: the receiver's and the harness's, whatever the server believes."""
    return _clock.now()


class Served(Protocol):
    """A world as its clients see it."""

    receiver: ReceiverProcess
    chance: random.Random
    up: asyncio.Event
    """Set while somebody is thought to listen; clients wait for it."""
    slow_ms_max: int
    """How long a slow callback may take."""
    look_up_after_ms: int
    """For how long what was asked may still take effect once its client has given up."""
    records: list[Record]
    refused_503: int
    failed: int
    """Requests that got no answer, or only 503, wherever they were sent."""
    problems: list[str]

    def places(self) -> Sequence[str]:
        """Where to send a request: to the first, and if that does not answer it, to the next."""

    def wall(self) -> int:
        """What the servers' clocks show."""


@asynccontextmanager
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(
        headers={"X-API-Key": KEY},
        connector=aiohttp.TCPConnector(limit=64),
        timeout=aiohttp.ClientTimeout(total=15),
    ) as session:
        yield session


async def create_namespaces(world: Served) -> None:
    root = world.places()[0]
    async with client() as session:
        for name, fields in NAMESPACES.items():
            path = f"{root}/namespaces/{'update' if name == 'default' else 'create'}"
            async with session.post(path, json={"name": name, **fields}) as response:
                assert response.status == 200, await response.text()


async def settled(world: Served) -> dict[str, Found]:
    """Wait until nothing is pending or executing; what became of every timer in history."""
    async with asyncio.timeout(SETTLE_S_MAX), client() as session:
        for name in NAMESPACES:
            for status in ("pending", "executing"):
                while await _list(world, session, name, status=status, limit=1):
                    await asyncio.sleep(POLL_S)
        found: dict[str, Found] = {}
        for name in NAMESPACES:
            for timer in await _list(world, session, name):
                marks = timer["payload"]
                before = found.get(marks["key"])
                # Of a timer that was created again history has several entries.
                if before is None or before.revision <= marks["revision"]:
                    found[marks["key"]] = Found(
                        marks["revision"], timer["status"], timer["lastError"]
                    )
        return found


async def _list(
    world: Served, session: aiohttp.ClientSession, namespace: str, **asked: object
) -> list[dict[str, Any]]:
    root = world.places()[0]
    timers: list[dict[str, Any]] = []
    cursor = None
    while True:
        body = {"namespace": namespace, "limit": LIST_PAGE, "cursor": cursor} | asked
        async with session.post(f"{root}/timers/list", json=body) as response:
            assert response.status == 200, await response.text()
            page = await response.json()
        timers += page["timers"]
        cursor = page["nextCursor"]
        if cursor is None or "limit" in asked:
            return timers
