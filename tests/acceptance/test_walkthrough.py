"""What the README and `duetime dev` tell people to type does what they say."""

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from duetime.testing.receiver import Receiver
from tests.acceptance.processes import developing

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```sh ([a-z0-9-]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Shell:
    """Runs the blocks as written, except for the ports, which a test cannot have for itself."""

    def __init__(self, directory: Path, ports: dict[str, str], words: str = "") -> None:
        self._directory = directory
        self._ports = ports
        self._words = words

    async def run(self, commands: str) -> Any:
        script = f"set -euo pipefail\n{self._words}\n{commands}"
        for written, used in self._ports.items():
            script = script.replace(f"127.0.0.1:{written}", f"127.0.0.1:{used}")
        process = await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            script,
            cwd=self._directory,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(), 20)
        assert process.returncode == 0, err.decode()
        return json.loads(out)


async def ended(shell: Shell, get: str) -> Any:
    """The timer once its outcome is recorded: the receiver has its callback a moment before."""
    async with asyncio.timeout(20):
        while (found := await shell.run(get))["status"] == "executing":
            pass
    return found


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver() as receiver:
        yield receiver


async def test_the_readme_does_what_it_says(tmp_path: Path, receiver: Receiver) -> None:
    blocks = dict(BLOCK.findall((ROOT / "README.md").read_text()))
    async with developing(tmp_path) as duetime:
        ports = {"3000": duetime.url.rpartition(":")[2], "4000": receiver.url.rpartition(":")[2]}
        shell = Shell(tmp_path, ports, blocks["words"])

        created = await shell.run(blocks["v1-create"])
        assert created["status"] == "pending"
        rest = await shell.run(blocks["rest-create"])
        assert rest["code"] == 0
        listed = await shell.run(blocks["rest-list"])
        assert rest["data"]["id"] in {timer["id"] for timer in listed["data"]["timers"]}
        canceled = await shell.run(blocks["rest-cancel"])
        assert canceled["data"]["status"] == "canceled"

        await receiver.until(lambda: len(receiver.requests) == 2)
        hello, order = receiver.requests
        assert (hello.path, json.loads(hello.body)["payload"]) == ("/hello", {"said": "hello"})
        assert (order.path, json.loads(order.body)) == ("/rest", {"order": 17})
        found = await ended(shell, blocks["v1-get"])
        assert (found["status"], found["attempts"]) == ("completed", 1)


async def test_what_dev_says_to_try_works(tmp_path: Path, receiver: Receiver) -> None:
    async with developing(tmp_path) as duetime:
        words = await duetime.said("Ctrl-C")
        assert f"API key   {duetime.key}" in words
        create, get = re.findall(r"^  (curl .*?)\n\n", words, re.MULTILINE | re.DOTALL)
        shell = Shell(tmp_path, {"4000": receiver.url.rpartition(":")[2]})
        assert (await shell.run(create))["id"] == "hello"
        await receiver.until(lambda: len(receiver.requests) == 1)
        assert (await ended(shell, get))["status"] == "completed"


async def test_the_receiver_of_the_walkthrough_shows_what_arrives(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "duetime.testing.receiver", "0", stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(20):
            said = (await process.stdout.readline()).decode()
            port = int(said.rpartition(":")[2])
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(
                b"POST /hello HTTP/1.1\r\nHost: x\r\nX-Timer-Id: hello\r\n"
                b'Content-Length: 8\r\n\r\n{"a": 1}'
            )
            line = (await process.stdout.readline()).decode()
            assert line.endswith(" POST /hello x-timer-id=hello\n")
            assert (await process.stdout.readline()).decode() == '  {"a": 1}\n'
            writer.close()
    finally:
        process.kill()
        await process.wait()
