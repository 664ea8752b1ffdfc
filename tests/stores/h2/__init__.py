"""H2 in the modes in which it is like Oracle and like SQL Server, for what it can try of them.

It is no substitute for either: it has neither their locks nor their plans nor their drivers.
But it parses what the dialects emit, and says what that finds.
"""

import asyncio
import base64
import hashlib
import itertools
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from scripts.servers.base import CannotBeHad, cache, run

from duetime.stores.sql.errors import Errors

VERSION = "2.3.232"
SHA256 = "8dae62d22db8982c3dcb3826edb9c727c5d302063a67eef7d63d82de401f07d3"
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.0:copy"
RUNNER = Path(__file__).parent / "Runner.java"
LOCK_WAIT_MS = 10_000
FUNCTIONS = {
    "ISJSON": "isJson",
    "SYSUTCDATETIME": "utcNow",
    "DATALENGTH": "dataLength",
    "UUIDS": "uuids",
}
"""Those of SQL Server that it lacks, and one that stands in for two: methods of `Runner`."""


class H2Error(Exception):
    """Its number, and what it says."""


ERRORS = Errors(
    types=(H2Error,),
    code=lambda error: error.args[0] if isinstance(error, H2Error) else None,
    conflicts={
        23505: "a row of this key is there",
        40001: "a deadlock",
        90131: "the row was written meanwhile",
    },
    gone={},
    unavailable={50200: "a lock was not to be had in time"},
    there_already=(23505, 42101, 42111),
    no_table=(42102, 42104),
)


class H2:
    """A process that runs statements for any number of connections."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._in = process.stdin
        self._numbers = itertools.count(1)
        self._asked: dict[str, Future[list[str]]] = {}
        self._lock = threading.Lock()
        self.reader = threading.Thread(target=self._read, args=(process.stdout,), daemon=True)
        self.reader.start()

    def ask(self, session: str, command: str, *words: str) -> "Future[list[str]]":
        answer: Future[list[str]] = Future()
        with self._lock:
            number = str(next(self._numbers))
            self._asked[number] = answer
            self._in.write(" ".join([number, session, command, *words]) + "\n")
            self._in.flush()
        return answer

    def _read(self, lines: IO[str]) -> None:
        for line in lines:
            number, status, *words = line.split()
            answer = self._asked.pop(number)
            if answer.cancelled():
                continue
            if status == "ok":
                answer.set_result(words)
            else:
                answer.set_exception(H2Error(int(words[0]), _decoded(words[1])))


@contextmanager
def running() -> Iterator[H2]:
    """`CannotBeHad` says why not."""
    command: list[str | Path] = [_java(), "-Xmx256m", "-cp", _jar(), RUNNER]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    ) as process:
        h2 = H2(process)
        try:
            yield h2
        finally:
            process.kill()
            h2.reader.join()


class H2Driver:
    """A database in memory, in one of the modes."""

    errors = ERRORS
    idle_s_max = 600
    _numbers = itertools.count(1)

    def __init__(self, h2: H2, mode: str, in_its_words: Callable[[str], str]) -> None:
        self.name = f"h2-{next(self._numbers)}"
        self._h2 = h2
        self._in_its_words = in_its_words
        self._url = (
            f"jdbc:h2:mem:{self.name};MODE={mode};DB_CLOSE_DELAY=-1;LOCK_TIMEOUT={LOCK_WAIT_MS}"
        )

    async def connect(self) -> "H2Connection":
        session = f"{self.name}-{next(self._numbers)}"
        connection = H2Connection(self._h2, session, self._in_its_words)
        await connection.command("open", _encoded(self._url))
        for name, method in FUNCTIONS.items():
            await connection.execute(f"CREATE ALIAS IF NOT EXISTS {name} FOR 'Runner.{method}'", ())
        return connection


class H2Connection:
    """One connection; what H2 does not know is put in its own words."""

    statement_bytes_max = 64 * 1024 * 1024

    def __init__(self, h2: H2, session: str, in_its_words: Callable[[str], str]) -> None:
        self._h2 = h2
        self._session = session
        self._in_its_words = in_its_words
        self._is_waiting = False

    @property
    def usable(self) -> bool:
        return not self._is_waiting

    async def fetch(self, statement: str, values: Sequence[object]) -> Sequence[Sequence[Any]]:
        _, columns, *words = await self._run(statement, values)
        found = [_from_word(word) for word in words]
        size = int(columns)
        return [found[start : start + size] for start in range(0, len(found), size)]

    async def execute(self, statement: str, values: Sequence[object]) -> int:
        changed, *_ = await self._run(statement, values)
        return int(changed)

    async def begin(self, *, snapshot: bool) -> None:
        await self.command("autocommit", "off")

    async def commit(self) -> None:
        await self.command("commit")
        await self.command("autocommit", "on")

    async def rollback(self) -> None:
        await self.command("rollback")
        await self.command("autocommit", "on")

    async def close(self) -> None:
        await self.command("close")

    def abort(self) -> None:
        self._h2.ask(self._session, "close")

    async def parse(self, statement: str) -> None:
        """As it is. `H2Error` says what H2 does not know of it."""
        await self.command("parse", _encoded(statement))

    async def command(self, command: str, *words: str) -> list[str]:
        self._is_waiting = True
        try:
            answer = await asyncio.wrap_future(self._h2.ask(self._session, command, *words))
        except H2Error:
            self._is_waiting = False
            raise
        self._is_waiting = False
        return answer

    async def _run(self, statement: str, values: Sequence[object]) -> list[str]:
        text = self._in_its_words(statement)
        return await self.command("run", _encoded(text), *map(_word, values))


def _word(value: object) -> str:
    if value is None:
        return "n"
    if isinstance(value, int):
        return f"i{value}"
    if isinstance(value, bytes):
        return f"b{value.hex()}"
    if isinstance(value, datetime):
        return f"t{value.isoformat()}"
    assert isinstance(value, str)
    return f"s{_encoded(value)}"


def _from_word(word: str) -> object:
    kind, rest = word[0], word[1:]
    if kind == "n":
        return None
    if kind == "i":
        return int(rest)
    if kind == "b":
        return bytes.fromhex(rest)
    return datetime.fromisoformat(rest) if kind == "t" else _decoded(rest)


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _decoded(word: str) -> str:
    return base64.b64decode(word).decode()


def _java() -> str:
    found = shutil.which("java")
    if found is None:
        raise CannotBeHad("install the Debian package openjdk-17-jdk-headless")
    return found


def _jar() -> Path:
    jar = cache() / f"h2-{VERSION}.jar"
    if not jar.exists():
        if shutil.which("mvn") is None:
            raise CannotBeHad("install the Debian package maven")
        folder = cache() / f"h2-{os.getpid()}"
        artifact = f"-Dartifact=com.h2database:h2:{VERSION}"
        run(["mvn", "-q", "-B", PLUGIN, artifact, f"-DoutputDirectory={folder}"])
        (folder / jar.name).rename(jar)
        folder.rmdir()
    if hashlib.sha256(jar.read_bytes()).hexdigest() != SHA256:
        jar.unlink()
        raise CannotBeHad(f"{jar.name} is not the one whose sha256 is pinned")
    return jar
