"""Real processes for the acceptance tests: started, told to stop, killed, and read."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from duetime.clock import SystemClock
from duetime.instants import format_instant

KEY = "acceptance-" * 4
START_S_MAX = 30.0
EXIT_S_MAX = 30.0
POLL_S = 0.01


class Exit(NamedTuple):
    """What a process left behind."""

    code: int
    out: str
    err: str


class Duetime:
    """One running `duetime serve` or `duetime dev`, and a client that holds its key."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.url = ""
        self.key = KEY
        self.out: list[str] = []
        self.log: list[dict[str, Any]] = []
        self._news = asyncio.Event()
        assert process.stdout is not None
        assert process.stderr is not None
        self._reading = [
            asyncio.create_task(self._read(process.stdout, self._printed)),
            asyncio.create_task(self._read(process.stderr, self._logged)),
        ]

    async def call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Status and body of one request."""
        async with (
            aiohttp.ClientSession(headers={"X-API-Key": self.key}) as session,
            session.request(method, self.url + path, json=body) as response,
        ):
            text = await response.text()
            return response.status, json.loads(text) if text else None

    async def v1(self, path: str, **body: object) -> Any:
        """The answer of a V1 operation on timers that must succeed."""
        return await self._succeeding(path, {"namespace": "default"} | body)

    async def namespace(self, name: str, **settings: object) -> Any:
        """The new namespace."""
        return await self._succeeding("namespaces/create", {"name": name} | settings)

    async def _succeeding(self, path: str, body: object) -> Any:
        status, answer = await self.call("POST", f"/{path}", body)
        assert status in (200, 204), answer
        return answer

    async def until_status(self, id: str, status: str) -> Any:
        """The timer, once it has the status."""
        async with asyncio.timeout(START_S_MAX):
            while True:
                timer = await self.v1("timers/get", timerId=id)
                if timer["status"] == status:
                    return timer

    async def logged(self, event: str) -> dict[str, Any]:
        """The first log line of the event, waited for."""
        await self._until(lambda: any(line["event"] == event for line in self.log))
        return next(line for line in self.log if line["event"] == event)

    async def counted(self, event: str, count: int) -> None:
        """Wait until the log has so many lines of the event."""
        await self._until(lambda: sum(line["event"] == event for line in self.log) >= count)

    async def said(self, words: str) -> str:
        """All that it has printed, once a line of that begins with the words."""
        await self._until(lambda: any(line.startswith(words) for line in self.out))
        return "\n".join(self.out)

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(START_S_MAX):
            while not condition():
                assert self.process.returncode is None, self.log
                self._news.clear()
                await self._news.wait()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def exit(self) -> int:
        """The exit code, waited for."""
        async with asyncio.timeout(EXIT_S_MAX):
            await asyncio.gather(*self._reading)
            return await self.process.wait()

    async def kill(self) -> None:
        """As a power cut would: nothing in the process gets to run any more."""
        if self.process.returncode is None:
            self.process.kill()
        await self.exit()

    async def _read(self, stream: asyncio.StreamReader, take: Callable[[str], None]) -> None:
        async for line in stream:
            take(line.decode().rstrip("\n"))
            self._news.set()
        self._news.set()

    def _printed(self, line: str) -> None:
        self.out.append(line)

    def _logged(self, line: str) -> None:
        self.log.append(json.loads(line) if line.startswith("{") else {"event": line})


@asynccontextmanager
async def starting(
    directory: Path, *options: str, module: str = "duetime", **settings: str
) -> AsyncIterator[Duetime]:
    """`duetime serve`, not waited for; killed at the end. `module` may stand in for `duetime`."""
    arguments = ["serve", *options]
    duetime = Duetime(await _start(arguments, directory, usual(directory) | settings, module))
    try:
        yield duetime
    finally:
        await duetime.kill()


@asynccontextmanager
async def serving(
    directory: Path, *, module: str = "duetime", **settings: str
) -> AsyncIterator[Duetime]:
    """`duetime serve` on a database in the directory, listening; killed at the end."""
    async with starting(directory, module=module, **settings) as duetime:
        duetime.url = (await duetime.logged("listening"))["url"]
        yield duetime


@asynccontextmanager
async def developing(directory: Path, *options: str) -> AsyncIterator[Duetime]:
    """`duetime dev` in the directory, listening; killed at the end."""
    duetime = Duetime(await _start(["dev", "--port", "0", *options], directory, {}))
    try:
        duetime.url = (await duetime.logged("listening"))["url"]
        duetime.key = (directory / ".duetime" / "api-key").read_text().strip()
        yield duetime
    finally:
        await duetime.kill()


async def run(directory: Path, *arguments: str, module: str = "duetime", **settings: str) -> Exit:
    """A `duetime` command that ends by itself."""
    process = await _start(list(arguments), directory, settings, module)
    try:
        async with asyncio.timeout(EXIT_S_MAX):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode is not None
    return Exit(process.returncode, out.decode(), err.decode())


def instant_in(seconds: float) -> str:
    return format_instant(SystemClock().now() + int(seconds * 1000))


async def instant_passed(at: int) -> None:
    """Wait for the instant itself."""
    while (ahead := at - SystemClock().now()) > 0:
        await asyncio.sleep(ahead / 1000)


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait for what nobody tells us of."""
    async with asyncio.timeout(START_S_MAX):
        while not condition():
            await asyncio.sleep(POLL_S)


def database_url(directory: Path) -> str:
    return f"sqlite:///{directory}/duetime.db"


def usual(directory: Path) -> dict[str, str]:
    """The settings with which `duetime serve` starts in a test."""
    return {
        "DATABASE_URL": database_url(directory),
        "API_KEY": KEY,
        "HOST": "127.0.0.1",
        "PORT": "0",
        "CALLBACK_ALLOW_NETWORKS": "127.0.0.0/8",
    }


async def _start(
    arguments: Sequence[str], directory: Path, settings: dict[str, str], module: str = "duetime"
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        *arguments,
        cwd=directory,
        env={"PATH": os.environ["PATH"], "PYTHONWARNINGS": "error"} | settings,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
