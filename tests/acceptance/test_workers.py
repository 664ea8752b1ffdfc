"""`serve --workers`: one port, several processes, and who looks after them."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from duetime.testing.receiver import Receiver, Request, Response
from tests.acceptance.processes import Duetime, eventually, instant_in, run, starting, usual

pytestmark = pytest.mark.slow


@asynccontextmanager
async def working(directory: Path, count: int = 2, **settings: str) -> AsyncIterator[Duetime]:
    """Workers that all listen."""
    async with starting(
        directory,
        "--workers",
        str(count),
        module="tests.acceptance.workers",
        DATABASE_URL="memory:",
        PYTHONPATH=str(Path(__file__).parents[2]),
        **settings,
    ) as duetime:
        duetime.url = (await duetime.logged("starting workers"))["url"]
        await duetime.counted("listening", count)
        yield duetime


def pids(duetime: Duetime) -> dict[int, int]:
    """The newest process of each worker."""
    started = [line for line in duetime.log if line["event"] == "node started"]
    return {line["worker"]: int(line["node"].split(":")[1].split("/")[0]) for line in started}


async def test_all_listen_on_one_port_and_drain_together(tmp_path: Path) -> None:
    async with working(tmp_path, 3) as duetime:
        listening = [line for line in duetime.log if line["event"] == "listening"]
        assert {line["url"] for line in listening} == {duetime.url}
        assert listening[0]["worker"] == 1
        assert len(set(pids(duetime).values())) == 3
        seen = set()
        for _ in range(60):
            _, cluster = await duetime.call("GET", "/api/v1/cluster")
            seen |= {node["name"].rsplit("/")[1] for node in cluster["nodes"]}
        assert len(seen) > 1  # Which of them gets a connection is the kernel's choice.
        duetime.signal(signal.SIGTERM)
        assert await duetime.exit() == 0
        assert duetime.log[-1]["event"] == "all workers stopped"
        assert sum(line["event"] == "stopped" for line in duetime.log) == 3


async def test_one_that_dies_is_started_anew(tmp_path: Path) -> None:
    async with working(tmp_path) as duetime:
        before = pids(duetime)
        os.kill(before[2], signal.SIGKILL)
        ended = await duetime.logged("worker ended")
        assert (ended["worker"], ended["code"]) == (2, -signal.SIGKILL)
        await duetime.counted("listening", 3)
        after = pids(duetime)
        assert after[1] == before[1]
        assert after[2] != before[2]
        duetime.signal(signal.SIGINT)
        assert await duetime.exit() == 0


async def test_a_second_signal_kills_those_that_still_drain(tmp_path: Path) -> None:
    async def never(_: Request) -> Response:
        await eventually(lambda: False)
        return Response()

    async with Receiver(never) as receiver, working(tmp_path, DRAIN_TIMEOUT="60s") as duetime:
        await duetime.v1(
            "timers/create", id="slow", executeAt=instant_in(1), callbackUrl=receiver.url
        )
        await receiver.until(lambda: len(receiver.requests) == 1)
        duetime.signal(signal.SIGTERM)
        await duetime.counted("draining", 3)
        duetime.signal(signal.SIGTERM)
        assert await duetime.exit() == 128 + signal.SIGTERM


async def test_workers_whose_parent_is_gone_drain_and_end(tmp_path: Path) -> None:
    async with working(tmp_path) as duetime:
        workers = pids(duetime).values()
        duetime.process.kill()
        await eventually(lambda: not any(alive(pid) for pid in workers))
        await duetime.exit()
        reasons = [line.get("reason") for line in duetime.log if line["event"] == "draining"]
        assert reasons == ["the parent process is gone"] * 2


async def test_what_keeps_the_first_one_from_starting_is_said_once(tmp_path: Path) -> None:
    settings: dict[str, Any] = usual(tmp_path) | {
        "DATABASE_URL": "memory:",
        "CLUSTER_HOST": "192.0.2.1",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    code, _, err = await run(
        tmp_path, "serve", "--workers", "3", module="tests.acceptance.workers", **settings
    )
    assert code == 1
    said = [line for line in err.splitlines() if line.startswith("duetime: ")]
    assert said == ["duetime: cannot listen on 192.0.2.1 port 0: Cannot assign requested address"]


async def test_a_store_for_one_process_is_refused(tmp_path: Path) -> None:
    code, _, err = await run(tmp_path, "serve", "--workers", "2", **usual(tmp_path))
    assert (code, err) == (
        2,
        "duetime: --workers needs a database that several processes can share;"
        " sqlite serves one at a time\n",
    )


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists() and b"(Z)" not in Path(f"/proc/{pid}/stat").read_bytes()
