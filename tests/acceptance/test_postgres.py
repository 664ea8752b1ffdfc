"""The whole server on PostgreSQL: it fires, dies, recovers, and says why it cannot start."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from scripts.servers import Postgresql

from duetime.instants import parse_instant
from duetime.testing.receiver import Receiver, Response
from tests.acceptance.processes import instant_in, instant_passed, run, serving, usual
from tests.servers import Servers

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def server(servers: Servers) -> Postgresql:
    server = servers.get("postgresql")
    assert isinstance(server, Postgresql)
    return server


@pytest.fixture
def url(server: Postgresql, request: Any) -> str:
    """A new database of this test's own."""
    name = request.node.name.partition("[")[0][:60]
    asyncio.run(_execute(server.url, f"CREATE DATABASE {name}"))
    return server.url_of(name)


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


async def test_timers_fire_retry_and_are_canceled(url: str, tmp_path: Path) -> None:
    answers = iter([Response(503), Response()])
    async with (
        Receiver(lambda _: next(answers)) as receiver,
        serving(tmp_path, DATABASE_URL=url) as duetime,
    ):
        retry = {"maxAttempts": 2, "initialInterval": "100ms"}
        await duetime.v1(
            "timers/create",
            id="retried",
            executeAt=instant_in(0.1),
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


async def test_what_was_accepted_outlives_kill_9(url: str, tmp_path: Path) -> None:
    async with Receiver() as receiver:
        due = instant_in(1.5)
        async with serving(tmp_path, DATABASE_URL=url) as duetime:
            timers = [
                {
                    "namespace": "default",
                    "id": f"t{n}",
                    "executeAt": due,
                    "callbackUrl": receiver.url,
                }
                for n in range(200)
            ]
            status, _ = await duetime.call("POST", "/timers/batch", {"timers": timers})
            assert status == 200
            await duetime.kill()
        await instant_passed(parse_instant(due))
        assert receiver.requests == []
        async with serving(tmp_path, DATABASE_URL=url):
            await receiver.until(lambda: len(receiver.requests) == 200)
        assert len({request.headers["x-timer-id"] for request in receiver.requests}) == 200


async def test_it_lives_through_a_restart_of_its_database(
    url: str, server: Postgresql, tmp_path: Path
) -> None:
    async with Receiver() as receiver, serving(tmp_path, DATABASE_URL=url) as duetime:
        await duetime.v1(
            "timers/create", id="before", executeAt=instant_in(1.5), callbackUrl=receiver.url
        )
        await asyncio.to_thread(server.stop)
        status, _ = await duetime.call("GET", "/health")
        assert status == 500
        await asyncio.to_thread(server.start)
        await duetime.until_status("before", "completed")
        assert len(receiver.requests) == 1


async def test_migrate_says_what_it_did_and_may_be_repeated(url: str, tmp_path: Path) -> None:
    for _ in range(2):
        code, out, err = await run(tmp_path, "migrate", DATABASE_URL=url)
        assert (code, out, err) == (0, "the postgresql schema is up to date\n", "")


@pytest.mark.parametrize(
    ("change", "code", "reason"),
    [
        (lambda url: url.replace("@", "x@"), 1, "it refuses this user or password (28P01)"),
        (lambda url: url + "_not", 1, "there is no such database (3D000)"),
        (lambda url: url.replace("127.0.0.1", "127.0.0.2"), 1, "it cannot be reached: "),
        (lambda url: url + "?pool=1", 2, "DATABASE_URL has an unknown option 'pool'; known are"),
    ],
)
async def test_why_it_cannot_start_is_one_line(
    server: Postgresql, tmp_path: Path, change: Callable[[str], str], code: int, reason: str
) -> None:
    url = change(server.url)
    password = server.url.split(":")[2].partition("@")[0]
    for command in ("serve", "migrate"):
        found, _, err = await run(tmp_path, command, **(usual(tmp_path) | {"DATABASE_URL": url}))
        assert found == code
        said = [line for line in err.splitlines() if not line.startswith("{")]
        assert len(said) == 1, err
        assert reason in said[0]
        assert password not in err


async def test_a_newer_schema_is_refused(url: str, tmp_path: Path) -> None:
    await run(tmp_path, "migrate", DATABASE_URL=url)
    await _execute(url, "UPDATE duetime_schema SET version = 99")
    for command in ("serve", "migrate"):
        code, _, err = await run(tmp_path, command, **(usual(tmp_path) | {"DATABASE_URL": url}))
        assert code == 1
        assert "the database has schema version 99" in err.splitlines()[-1]
