"""The whole server on every database: it fires, dies, recovers, outlives the database's end."""

import asyncio
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from duetime.instants import parse_instant
from duetime.testing.receiver import Receiver, Response
from tests.acceptance.processes import Duetime, instant_in, instant_passed, run, serving
from tests.acceptance.stores import Target, target, targets
from tests.servers import Servers

BATCH = 20
RECOVERY_S_MAX = 90


@pytest.fixture(params=targets())
def database(request: Any, servers: Servers, tmp_path: Path) -> Iterator[Target]:
    """A new one of this test's own."""
    with target(request.param, servers, tmp_path) as found:
        yield found


async def test_timers_fire_retry_and_are_canceled(database: Target, tmp_path: Path) -> None:
    answers = iter([Response(503), Response()])
    async with (
        Receiver(lambda _: next(answers)) as receiver,
        serving(tmp_path, DATABASE_URL=database.url) as duetime,
    ):
        retry = {"maxAttempts": 2, "initialInterval": "100ms"}
        await duetime.v1(
            "timers/create",
            id="retried",
            executeAt=instant_in(1),
            callbackUrl=receiver.url,
            payload={"n": 1},
            retryPolicy=retry,
        )
        await duetime.v1(
            "timers/create", id="canceled", executeAt=instant_in(2), callbackUrl=receiver.url
        )
        await duetime.v1("timers/delete", timerId="canceled")
        timer = await duetime.until_status("retried", "completed")
        assert timer["attempts"] == 2
        assert (await duetime.v1("timers/get", timerId="canceled"))["status"] == "canceled"
        listed = await duetime.v1("timers/list")
        assert {timer["id"] for timer in listed["timers"]} == {"retried", "canceled"}
        assert (await duetime.call("GET", "/health"))[0] == 200


async def test_what_was_accepted_outlives_kill_9(database: Target, tmp_path: Path) -> None:
    async with Receiver() as receiver:
        async with serving(tmp_path, DATABASE_URL=database.url) as duetime:
            due = instant_in(4)  # From when it serves: it may have had tables to make.
            assert await _create(duetime, receiver, range(200), due)
            await duetime.kill()
        await instant_passed(parse_instant(due))
        assert receiver.requests == []
        async with serving(tmp_path, DATABASE_URL=database.url):
            await receiver.until(lambda: len(receiver.requests) == 200, timeout_s=RECOVERY_S_MAX)
        assert len({request.headers["x-timer-id"] for request in receiver.requests}) == 200


@pytest.mark.parametrize(
    "how", [pytest.param(signal.SIGTERM, marks=pytest.mark.slow), signal.SIGKILL]
)
async def test_nothing_is_lost_when_the_database_goes_and_comes_back(
    database: Target, tmp_path: Path, how: signal.Signals
) -> None:
    server = database.server
    if server is None:
        pytest.skip(reason="there is no server that could stop")
    if how == signal.SIGKILL and not server.durable_when_killed:
        pytest.skip(reason="killed, this stand-in for a service forgets what it had answered")
    async with (
        Receiver() as receiver,
        serving(tmp_path, DATABASE_URL=database.url) as duetime,
    ):
        load = _Load(duetime, receiver)
        creating = asyncio.create_task(load.create())
        await load.until_accepted(500)
        await asyncio.to_thread(server.stop, how)
        await load.until_refused()
        assert (await duetime.call("GET", "/health"))[0] == 500
        await asyncio.to_thread(server.start)
        await load.until_accepted(load.accepted + 500)
        load.ends = True
        await creating
        arrived: set[str] = set()

        def all_arrived() -> bool:
            arrived.update(request.headers["x-timer-id"] for request in receiver.requests)
            return load.ids <= arrived

        await receiver.until(all_arrived, timeout_s=RECOVERY_S_MAX)


async def test_a_port_where_nothing_listens_is_one_line(database: Target, tmp_path: Path) -> None:
    server = database.server
    if server is None:
        pytest.skip(reason="there is no server to reach")
    # Nothing of ours listens on any port of this address of the machine itself.
    url = database.url.replace("127.0.0.1", "127.0.0.2")
    # MongoDB's driver forgets to close what it could not connect.
    warnings = {"PYTHONWARNINGS": "error,ignore::ResourceWarning"}
    code, _, err = await run(tmp_path, "migrate", DATABASE_URL=url, **warnings)
    assert code == 1
    assert len(err.splitlines()) == 1
    assert err.startswith("duetime: ")
    password = re.search(r"://[^/@]*:([^/@]+)@", url)
    assert password is None or password[1] not in err


async def test_migrate_says_what_it_did_and_may_be_repeated(
    database: Target, tmp_path: Path
) -> None:
    for _ in range(2):
        code, out, err = await run(tmp_path, "migrate", DATABASE_URL=database.url)
        assert (code, err) == (0, "")
        assert re.fullmatch(r"the \w+ schema is up to date\n", out)


class _Load:
    """Batch after batch of timers that are due soon; what was accepted is remembered."""

    def __init__(self, duetime: Duetime, receiver: Receiver) -> None:
        self.ids: set[str] = set()
        self.ends = False
        self._duetime = duetime
        self._receiver = receiver
        self._refused = 0
        self._news = asyncio.Event()

    @property
    def accepted(self) -> int:
        return len(self.ids)

    async def create(self) -> None:
        first = 0
        while not self.ends:
            numbers = range(first, first + BATCH)
            if await _create(self._duetime, self._receiver, numbers, instant_in(1.5)):
                self.ids.update(f"t{number}" for number in numbers)
            else:
                self._refused += 1
            first += BATCH
            self._news.set()

    async def until_accepted(self, count: int) -> None:
        async with asyncio.timeout(RECOVERY_S_MAX):
            while self.accepted < count:
                await self._any_news()

    async def until_refused(self) -> None:
        async with asyncio.timeout(RECOVERY_S_MAX):
            while not self._refused:
                await self._any_news()

    async def _any_news(self) -> None:
        self._news.clear()
        await self._news.wait()


async def _create(duetime: Duetime, receiver: Receiver, numbers: range, due: str) -> bool:
    """Whether all of them were accepted."""
    status, answer = await duetime.call(
        "POST",
        "/timers/batch",
        {
            "timers": [
                {
                    "namespace": "default",
                    "id": f"t{number}",
                    "executeAt": due,
                    "callbackUrl": receiver.url,
                }
                for number in numbers
            ]
        },
    )
    return status == 200 and all("timer" in result for result in answer["results"])
