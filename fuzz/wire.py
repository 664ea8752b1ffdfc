"""Raw sockets: random bytes, changed requests, garbage sent ahead, connections cut anywhere."""

import asyncio
from pathlib import Path
from random import Random

from tests.acceptance.processes import KEY, Duetime, serving
from tests.fuzz.answers import statuses

from fuzz.report import Report

CONVERSATIONS = 4_000
AT_ONCE = 50
# Longer than any request may take to come; nobody is left hanging.
CONVERSATION_S_MAX = 40.0
ROUNDS_AFTER = 20

_HEAD = f"Host: x\r\nX-API-Key: {KEY}\r\nContent-Type: application/json\r\n".encode()
_BODY = b'{"namespace":"default","timerId":"a"}'
REQUESTS = (
    b"POST /timers/get HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n%b" % (_HEAD, len(_BODY), _BODY),
    b"POST /timers/get HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n"
    % (_HEAD, len(_BODY), _BODY),
    b"GET /timers?limit=1 HTTP/1.1\r\n%b\r\n" % _HEAD,
    b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n",
    b"PUT /timers/x HTTP/1.1\r\n%bConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n" % _HEAD,
    b"POST /timers HTTP/1.1\r\n%bContent-Length: 2\r\nExpect: 100-continue\r\n\r\n{}" % _HEAD,
)
LENGTHS = (b"0", b"1", b"99", b"-1", b"1e3", b"9" * 30, b"0x10", b"16777217")


async def run(directory: Path, seed: int) -> Report:
    report = Report()
    async with serving(directory) as duetime:
        port = int(duetime.url.rpartition(":")[2])
        room = asyncio.Semaphore(AT_ONCE)
        answers = 0

        async def converse(number: int) -> None:
            nonlocal answers
            chance = Random(f"{seed}/{number}")
            async with room:
                try:
                    async with asyncio.timeout(CONVERSATION_S_MAX):
                        said = await _converse(port, chance)
                    answers += len(statuses(said))
                except TimeoutError:
                    report.problems.append(f"conversation {number} did not end")
                except AssertionError as error:
                    report.problems.append(f"conversation {number}: {error}")

        async with asyncio.TaskGroup() as tasks:
            for number in range(CONVERSATIONS):
                tasks.create_task(converse(number))
        await _still_well(duetime, report)
        report.problems += [str(line) for line in duetime.log if line.get("level") != "info"]
        report.add("raw conversations", CONVERSATIONS)
        report.add("raw answers", answers)
    return report


async def _converse(port: int, chance: Random) -> bytes:
    """Say something, in pieces, perhaps cut off; all that was said in return."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    said = bytearray()
    try:
        data = stream(chance)
        while data:
            size = max(chance.choice((1, 10, 100, 1_000, 100_000)), len(data) // 100)
            writer.write(data[:size])
            data = data[size:]
            await writer.drain()
        if chance.random() < 0.15:
            writer.transport.abort()
            return b""
        writer.write_eof()
        while more := await reader.read(65_536):
            said += more
    except OSError:  # What is no longer connected is not a ConnectionError to `write_eof`.
        # Cut off while we were still sending: the answer may be lost with it, half of it too.
        return b""
    finally:
        writer.close()
    return bytes(said)


def stream(chance: Random) -> bytes:
    kind = chance.randrange(5)
    if kind == 0:
        return chance.randbytes(chance.choice((1, 20, 3_000)))
    data = bytearray(b"".join(chance.choices(REQUESTS, k=chance.randint(1, 8))))
    if kind == 1:
        data += chance.randbytes(chance.randint(1, 400))
    elif kind == 2:
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(data))
            data[at : at + chance.randint(0, 10)] = chance.randbytes(chance.randint(0, 4))
    elif kind == 3:
        wrong = b"Content-Length: " + chance.choice(LENGTHS)
        data = data.replace(b"Content-Length: %d" % len(_BODY), wrong)
    else:
        header = b"X: " + b"y" * chance.choice((100, 60_000, 66_000, 400_000)) + b"\r\n"
        data = data.replace(b"Host: x\r\n", header * chance.choice((1, 1, 130)), 1)
        del data[chance.randrange(len(data)) :]
    return bytes(data)


async def _still_well(duetime: Duetime, report: Report) -> None:
    for _ in range(ROUNDS_AFTER):
        status, _ = await duetime.call("GET", "/health")
        if status != 200:
            report.problems.append(f"/health answers {status} afterwards")
