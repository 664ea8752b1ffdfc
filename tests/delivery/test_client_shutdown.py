"""Closing drops everything at once; what hangs does not slow down what does not."""

import asyncio
import ssl
import threading
import time

import pytest

from duetime.delivery.guard import AddressGuard
from duetime.retry import Answer
from tests.delivery.asking import Asking, Call
from tests.delivery.conftest import LOOPBACK
from tests.delivery.peers import OK, Connection, answering_ok, serving, silent

CLOSED_WITHIN_S = 0.1


async def closes_at_once(asking: Asking) -> None:
    began = time.monotonic()
    await asking.client.close()
    assert time.monotonic() - began <= CLOSED_WITHIN_S


async def test_closing_drops_requests_in_every_state_without_an_answer(
    trusting: ssl.SSLContext,
) -> None:
    over = threading.Event()

    def lookup(host: str) -> list[str]:
        if host == "slow.test":
            over.wait(10)
        return ["127.0.0.1"]

    gone: set[int] = set()
    arrived = asyncio.Queue[int]()

    async def script(connection: Connection) -> None:
        if connection.number == 1:
            await connection.request()
            await connection.send(OK)
        arrived.put_nowait(connection.number)
        try:
            await connection.rest()
        finally:
            gone.add(connection.number)

    guard = AddressGuard(LOOPBACK, False, lookup=lookup)
    asking = Asking(guard, ssl_context=trusting)
    async with serving(script) as peer:
        await asking.ask(peer.url("/idle"))
        calls = [
            asking.send("http://slow.test/name"),
            asking.send(peer.url("/waiting")),
            asking.send(peer.url("/waiting-as-well")),
            asking.send(peer.url("/half-sent"), b"x" * 12_000_000),
            asking.send(peer.url("/handshake", scheme="https")),
        ]
        async with asyncio.timeout(5):
            seen = {await arrived.get() for _ in range(4)}
        assert seen == {1, 2, 3, 4}
        await closes_at_once(asking)
        calls.append(asking.send(peer.url("/too-late")))
        async with asyncio.timeout(5):
            while len(gone) < 4:
                await asyncio.sleep(0.001)
        # By the time that another client has its answer, a late request would be under way.
        async with Asking(AddressGuard(LOOPBACK, False)) as other:
            assert (await other.error(peer.url(), timeout_s=0.05)).startswith("timed out")
        assert [call.answer for call in calls] == [None] * 6
        assert peer.connections == 5
    over.set()


async def test_closing_twice_is_fine(asking: Asking) -> None:
    async with serving(answering_ok) as peer:
        await asking.ask(peer.url())
        await asking.client.close()
        await asking.client.close()


async def test_a_request_may_be_sent_from_within_an_answer(asking: Asking) -> None:
    answered: list[Answer] = []
    done = asyncio.Event()

    async with serving(answering_ok) as peer:

        def again(answer: Answer) -> None:
            answered.append(answer)
            if len(answered) < 100:
                call = asking.send(peer.url())
                call.then = again
            else:
                done.set()

        asking.send(peer.url()).then = again
        async with asyncio.timeout(5):
            await done.wait()
        assert answered == [Answer(200, b"ok")] * 100
        assert peer.connections == 1


async def test_a_client_closed_from_within_an_answer_is_closed(asking: Asking) -> None:
    closing: list[asyncio.Task[None]] = []

    async with serving(answering_ok) as peer:

        def close(_: Answer) -> None:
            closing.append(asyncio.ensure_future(asking.client.close()))

        call = asking.send(peer.url())
        call.then = close
        await asking.answer(call)
        await closing[0]
        assert asking.send(peer.url()).answer is None


@pytest.mark.slow
async def test_450_that_hang_beside_1000_a_second_that_do_not(asking: Asking) -> None:
    quick_s, rate, each = 3, 1_000, 10
    async with serving(silent) as hanging, serving(answering_ok) as quick:
        hung = [asking.send(hanging.url(), timeout_s=30) for _ in range(450)]
        async with asyncio.timeout(10):
            while hanging.connections < 450:
                await asyncio.sleep(0.01)
        calls: list[Call] = []
        began = time.monotonic()
        for n in range(quick_s * rate // each):
            calls += [asking.send(quick.url(f"/{n}")) for _ in range(each)]
            await asyncio.sleep(max(0.0, began + (n + 1) * each / rate - time.monotonic()))
        for call in calls:
            assert await asking.answer(call) == Answer(200, b"ok")
        took_s = sorted(call.answered_at - call.sent_at for call in calls)
        assert took_s[len(took_s) * 99 // 100] < 0.1
        assert quick.connections < 450
        await closes_at_once(asking)
        assert all(call.answer is None for call in hung)
