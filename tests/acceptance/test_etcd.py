"""Whole servers on PostgreSQL that meet in etcd: one dies, freezes, leaves; and the refusals."""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import pytest

from duetime.clock import SystemClock
from duetime.instants import parse_instant
from duetime.testing.receiver import Receiver
from tests.acceptance.processes import Duetime, instant_in, instant_passed, run, serving, usual
from tests.etcds import etcd_of, own_etcd
from tests.servers import Servers

pytestmark = [pytest.mark.server, pytest.mark.slow]

EVERY_S = 0.05
AHEAD_S = 2.0

_databases = count(1)


@pytest.fixture
def settings(servers: Servers) -> dict[str, str]:
    """Of a cluster of this test's own."""
    database = servers.get("postgresql").new_url(f"etcd_{next(_databases)}")
    return {"DATABASE_URL": database, "MEMBERSHIP_URL": etcd_of(servers).url}


@asynccontextmanager
async def pair(folder: Path, settings: dict[str, str]) -> AsyncIterator[tuple[Duetime, Duetime]]:
    """Nodes `a` and `b`, when each has shards."""
    folders = folder / "a", folder / "b"
    for each in folders:
        each.mkdir()
    async with (
        serving(folders[0], NODE_NAME="a", **settings) as a,
        serving(folders[1], NODE_NAME="b", **settings) as b,
    ):
        await shared(a, 2)
        yield a, b


async def shared(node: Duetime, nodes: int) -> None:
    """Wait until so many nodes own all shards between them."""
    async with asyncio.timeout(30):
        while True:
            _, cluster = await node.call("GET", "/api/v1/cluster")
            owned = [each["shards"] for each in cluster["nodes"]]
            if len(owned) == nodes and all(owned) and sum(owned) == 16:
                return
            await asyncio.sleep(0.05)


async def create(node: Duetime, receiver: Receiver, seconds: float) -> int:
    """One timer due after the other for so long; how many."""
    ids = range(int(seconds / EVERY_S))
    timers = [
        {
            "namespace": "default",
            "id": f"t{i}",
            "executeAt": instant_in(AHEAD_S + i * EVERY_S),
            "callbackUrl": receiver.url,
        }
        for i in ids
    ]
    status, answer = await node.call("POST", "/timers/batch", {"timers": timers})
    assert status == 200
    assert all("timer" in result for result in answer["results"])
    return len(ids)


def worst_lateness_s(receiver: Receiver) -> float:
    """Of each timer's first callback. None was early."""
    first: dict[str, float] = {}
    for request in receiver.requests:
        late_ms = request.at - parse_instant(request.headers["x-timer-scheduled-at"])
        assert late_ms >= 0
        first.setdefault(request.headers["x-timer-id"], late_ms / 1000)
    return max(first.values())


def duplicates(receiver: Receiver) -> int:
    ids = Counter(request.headers["x-timer-id"] for request in receiver.requests)
    return ids.total() - len(ids)


async def all_arrived(receiver: Receiver, timers: int) -> None:
    def done() -> bool:
        return len({request.headers["x-timer-id"] for request in receiver.requests}) == timers

    await receiver.until(done, timeout_s=60)


async def test_the_timers_of_a_killed_node_fire_on_the_other_within_seconds(
    settings: dict[str, str], tmp_path: Path
) -> None:
    async with Receiver() as receiver, pair(tmp_path, settings) as (a, b):
        timers = await create(a, receiver, 8)
        await receiver.until(lambda: len(receiver.requests) > 20)
        await b.kill()
        await all_arrived(receiver, timers)
        assert worst_lateness_s(receiver) < 8
        await shared(a, 1)


async def test_a_node_that_is_told_to_stop_hands_over_at_once_and_nothing_fires_twice(
    settings: dict[str, str], tmp_path: Path
) -> None:
    async with Receiver() as receiver, pair(tmp_path, settings) as (a, b):
        timers = await create(a, receiver, 5)
        await receiver.until(lambda: len(receiver.requests) > 20)
        b.signal(signal.SIGTERM)
        assert await b.exit() == 0
        await all_arrived(receiver, timers)
        assert worst_lateness_s(receiver) < 2
        assert duplicates(receiver) == 0


async def test_a_frozen_node_is_replaced_and_takes_part_again_when_it_wakes(
    settings: dict[str, str], tmp_path: Path
) -> None:
    async with Receiver() as receiver, pair(tmp_path, settings) as (a, b):
        timers = await create(a, receiver, 10)
        await receiver.until(lambda: len(receiver.requests) > 20)
        b.signal(signal.SIGSTOP)
        await shared(a, 1)
        b.signal(signal.SIGCONT)
        await all_arrived(receiver, timers)
        await shared(a, 2)
        await shared(b, 2)


async def test_while_etcd_is_away_nothing_fires_and_then_everything_does(
    servers: Servers, settings: dict[str, str], tmp_path: Path
) -> None:
    with own_etcd(servers) as etcd:
        own = settings | {"MEMBERSHIP_URL": etcd.url}
        async with Receiver() as receiver, pair(tmp_path, own) as (a, b):
            timers = await create(a, receiver, 10)
            await receiver.until(lambda: len(receiver.requests) > 20)
            etcd.stop(signal.SIGKILL)
            for node in (a, b):
                await not_ready(node)
            stopped_at = SystemClock().now() + 300  # What was sent has arrived by then.
            await instant_passed(stopped_at + 1_000)
            back_at = SystemClock().now()
            etcd.start()
            await all_arrived(receiver, timers)
            assert not [r for r in receiver.requests if stopped_at < r.at < back_at]
            assert duplicates(receiver) == 0
            await shared(a, 2)


async def not_ready(node: Duetime) -> None:
    async with asyncio.timeout(30):
        while (await node.call("GET", "/ready"))[0] == 200:
            await asyncio.sleep(0.02)


async def test_why_it_cannot_start_is_one_line(settings: dict[str, str], tmp_path: Path) -> None:
    password = "p4ssw0rd"
    for url, code, reason in (
        ("etcd://127.0.0.1:1", 1, "etcd at 127.0.0.1:1: it cannot be reached: "),
        (
            settings["MEMBERSHIP_URL"].replace("//", f"//u:{password}@"),
            1,
            "authentication is not enabled",
        ),
        (f"etcd://u:{password}/@x", 2, "MEMBERSHIP_URL must have the form etcd://"),
        ("redis://x", 2, "MEMBERSHIP_URL must begin with etcd:// or etcds://"),
    ):
        given = usual(tmp_path) | settings | {"MEMBERSHIP_URL": url}
        found, _, err = await run(tmp_path, "serve", **given)
        said = [line for line in err.splitlines() if not line.startswith("{")]
        assert (found, len(said)) == (code, 1), err
        assert reason in said[0]
        assert password not in err


async def test_a_database_for_one_process_needs_no_membership(
    servers: Servers, tmp_path: Path
) -> None:
    given = usual(tmp_path) | {"MEMBERSHIP_URL": etcd_of(servers).url}
    code, _, err = await run(tmp_path, "serve", **given)
    assert (code, err.splitlines()[-1]) == (
        2,
        "duetime: MEMBERSHIP_URL needs a database that several processes can share;"
        " sqlite serves one at a time",
    )


async def test_a_second_node_of_one_name_is_refused(
    settings: dict[str, str], tmp_path: Path
) -> None:
    async with serving(tmp_path, NODE_NAME="a", **settings):
        code, _, err = await run(tmp_path, "serve", **(usual(tmp_path) | settings), NODE_NAME="a")
        assert code == 2
        assert "a node named 'a' is alive at 127.0.0.1:" in err.splitlines()[-1]
