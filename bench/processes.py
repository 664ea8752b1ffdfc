"""The processes the bench starts, and what the kernel says of them. Each is ended by its pid."""

import array
import asyncio
import contextlib
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import DEVNULL
from types import TracebackType

from msgspec import Struct
from msgspec.json import decode

from bench.client import Response, connections, get
from bench.score import Arrival

ROOT = Path(__file__).resolve().parent.parent
COMMAND = (str(Path(sys.executable).with_name("duetime")), "serve")
_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Receiver:
    """The sink, as a process of its own; see `bench.receiver`."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self._process = process
        self.port = port

    @classmethod
    @asynccontextmanager
    async def running(cls) -> AsyncIterator["Receiver"]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "bench.receiver",
            cwd=ROOT,
            stdin=DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            assert process.stdout is not None
            async with asyncio.timeout(30):
                port = int(await process.stdout.readline())
            yield cls(process, port)
        finally:
            await _end(process)

    def cpu_s(self) -> float:
        return usage(self._process.pid).cpu_s

    async def count(self) -> int:
        return int((await fetch(self.port, "/count")).body)

    async def reset(self) -> None:
        await fetch(self.port, "/reset")

    async def arrivals(self) -> list[Arrival]:
        numbers = array.array("q", (await fetch(self.port, "/dump")).body)
        half = len(numbers) // 2
        return [Arrival(*pair) for pair in zip(numbers[:half], numbers[half:], strict=True)]

    async def wait(self, want: int, *, quiet_s: float = 15.0, step_s: float = 0.25) -> int:
        """Until `want` have arrived, or none did for `quiet_s`; how many there are then."""
        seen, changed = await self.count(), time.monotonic()
        while seen < want and time.monotonic() - changed < quiet_s:
            await asyncio.sleep(step_s)
            count = await self.count()
            if count != seen:
                seen, changed = count, time.monotonic()
        return seen


class Server:
    """`duetime serve` on a database: what a user runs, nothing special."""

    def __init__(
        self,
        url: str,
        *,
        home: Path,
        key: str | None = None,
        workers: int | None = None,
        command: Sequence[str] = COMMAND,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Servers of one cluster have one `key`. Without `workers`, the process is the node."""
        self.home = home
        self.key = key or secrets.token_hex(20)
        self.port = free_port()
        self._command = (*command, *(["--workers", str(workers)] if workers else []))
        self._settings = {
            "DATABASE_URL": url,
            "API_KEY": self.key,
            "HOST": "127.0.0.1",
            "PORT": str(self.port),
            "CALLBACK_ALLOW_NETWORKS": "127.0.0.0/8",
            **(settings or {}),
        }
        self._log = home / "log"
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def workers(self) -> list[int]:
        """The processes that are nodes: those it forked, or itself."""
        return sorted(set(tree(self.pid)) - {self.pid}) or [self.pid]

    async def __aenter__(self) -> "Server":
        self.home.mkdir(parents=True, exist_ok=True)
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> float:
        """Start it and wait until it answers; when the process was started, on the wall clock."""
        started = time.time()
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                cwd=self.home,
                env=os.environ | self._settings,
                stdin=DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self._process.returncode is None:
            with contextlib.suppress(OSError):
                if (await fetch(self.port, "/health")).status == 200:
                    return started
            await asyncio.sleep(0.02)
        tail = self._log.read_text(errors="replace")[-2000:]
        raise RuntimeError(f"duetime serve did not become ready:\n{tail}")

    async def stop(self) -> None:
        if self._process is not None:
            await _end(self._process)

    async def kill(self) -> None:
        """kill -9, no chance to flush anything."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()

    async def total(self, status: str) -> int:
        """How many timers of the default namespace the database holds in this status."""
        answer = await fetch(self.port, f"/timers?status={status}&limit=1", self.key)
        if answer.status != 200:
            raise RuntimeError(f"list answered {answer.status}: {answer.body[:500]!r}")
        return decode(answer.body, type=_ListAnswer).data.total

    def usage(self) -> "Usage":
        return usage(self.pid)


class _ListData(Struct):
    total: int


class _ListAnswer(Struct):
    data: _ListData


class Usage(Struct, frozen=True, kw_only=True):
    """What a process and its children have used so far."""

    cpu_s: float
    """Of those that have ended as well."""
    rss_bytes: int
    store_wakeups: int
    """How often any thread but each process's first woke from a wait. Database calls run on
    such threads, so between two instants this bounds their number from above."""


def usage(pid: int) -> Usage:
    ticks = pages = wakeups = 0
    for member in tree(pid):
        with contextlib.suppress(OSError):
            fields = _stat(member)
            ticks += sum(map(int, fields[11:15]))
            pages += int(fields[21])
            wakeups += sum(_waits(task) for task in _tasks(member) if task.name != str(member))
    return Usage(cpu_s=ticks / _TICK, rss_bytes=pages * _PAGE, store_wakeups=wakeups)


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()


def tree(root: int) -> Iterable[int]:
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                parents[int(entry)] = int(_stat(int(entry))[1])
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def _tasks(pid: int) -> Iterable[Path]:
    return Path(f"/proc/{pid}/task").iterdir()


def _waits(task: Path) -> int:
    for line in (task / "status").read_text().splitlines():
        if line.startswith("voluntary_ctxt_switches:"):
            return int(line.split()[1])
    return 0


async def fetch(port: int, path: str, key: str = "") -> Response:
    async with asyncio.timeout(30), connections(port, 1) as (connection,):
        return await connection.request(get(path, key))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a process group that the bench started: kindly, then not."""
    for number, patience_s in ((signal.SIGTERM, 15), (signal.SIGKILL, 15)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await process.wait()
                return
