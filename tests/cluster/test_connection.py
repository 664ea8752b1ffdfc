"""Real sockets: who gets in and who does not, what is lost and what is not, and every bound."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from duetime.cluster import wire
from duetime.cluster.connection import Connection
from duetime.cluster.handshake import Caller, Node, shared_secret
from duetime.cluster.hints import Hint, ShardsReleased
from duetime.cluster.membership import Member
from duetime.cluster.peers import Cancel, Executing, Get, Operation, PeerFailed, PeerLost
from duetime.cluster.tcp import TcpPeers, join_address, split_address
from duetime.errors import TimerNotFound, Unavailable
from duetime.listening import CannotListen
from duetime.store import Key

SECRET = shared_secret(None, api_key="k" * 32)
GET = Get(Key(1, "n", "i"))


class Ends:
    """Two nodes that know each other; `b` does what the test says."""

    def __init__(self, a: TcpPeers, b: TcpPeers, b_member: Member) -> None:
        self.a = a
        self.b = b
        self.b_member = b_member

    async def call(self, operation: Operation = GET) -> Any:
        return await self.a.call(self.b_member, operation)

    @property
    def outgoing(self) -> Connection:
        return self.a._out["b"].connection

    @property
    def incoming(self) -> list[Connection]:
        return list(self.b._in)


def peers(name: str, secret: bytes = SECRET) -> TcpPeers:
    made = TcpPeers(host="127.0.0.1", port=0, secret=secret)
    made.introduce(name, f"boot of {name}")
    return made


def member(name: str, address: str, boot: str | None = None) -> Member:
    boot = f"boot of {name}" if boot is None else boot
    return Member(name=name, boot=boot, address=address, started_at=0, version="0")


@asynccontextmanager
async def connected(secret_of_b: bytes = SECRET) -> AsyncIterator[Ends]:
    a, b = peers("a"), peers("b", secret_of_b)
    try:
        await a.start()
        yield Ends(a, b, member("b", await b.start()))
    finally:
        await a.close()
        await b.close()


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    async with connected() as both:
        yield both


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not done():
            await asyncio.sleep(0.001)


def answering(value: Any) -> Callable[[Operation], Any]:
    async def answer(operation: Operation) -> Any:
        return value

    return answer


class Holding:
    """Answers when the test opens it."""

    def __init__(self) -> None:
        self.asked: list[Operation] = []
        self.open = asyncio.Event()

    async def __call__(self, operation: Operation) -> Any:
        self.asked.append(operation)
        await self.open.wait()
        return [b"x"]


# -- calls --------------------------------------------------------------------------------------


async def test_answers_find_their_calls_in_whatever_order_they_come(ends: Ends) -> None:
    events = {f"n{n}": asyncio.Event() for n in range(50)}

    async def answer(operation: Operation) -> Any:
        assert isinstance(operation, Executing)
        await events[operation.namespace].wait()
        return [operation.namespace.encode()]

    ends.b.on_call = answer
    calls = {name: asyncio.create_task(ends.call(Executing(name))) for name in events}
    for name in sorted(events, reverse=True):
        events[name].set()
        assert await calls[name] == [name.encode()]


async def test_what_is_asked_in_one_turn_goes_in_one_frame(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends.b.on_call = answering([])
    await ends.call(Executing("first"))
    frames = []
    frame_of = wire.frame_of

    def counting(messages: Any) -> bytes:
        frames.append(len(messages))
        return frame_of(messages)

    monkeypatch.setattr(wire, "frame_of", counting)
    await asyncio.gather(*(ends.call(Executing("n")) for _ in range(100)))
    assert frames[0] == 100
    assert sum(frames[1:]) == 100
    assert len(frames) <= 3


async def test_an_error_there_is_an_error_here(
    ends: Ends, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(operation: Operation) -> Any:
        raise TimerNotFound("n", "i")

    async def stumble(operation: Operation) -> Any:
        raise ZeroDivisionError

    ends.b.on_call = refuse
    with pytest.raises(TimerNotFound):
        await ends.call()
    ends.b.on_call = stumble
    with pytest.raises(PeerFailed):
        await ends.call()
    assert [record.getMessage() for record in caplog.records if record.exc_info] == [
        "call of another node failed"
    ]


async def test_an_answer_of_another_type_than_asked_for_is_the_others_failure(ends: Ends) -> None:
    ends.b.on_call = answering("no view")
    with pytest.raises(PeerFailed):
        await ends.call()


async def test_hints_arrive_and_need_not(ends: Ends) -> None:
    heard: list[Hint] = []
    ends.b.on_message = heard.append
    await ends.a.tell(ends.b_member, ShardsReleased([1, 2]))
    await until(lambda: heard == [ShardsReleased([1, 2])])
    await ends.a.tell(member("c", "127.0.0.1:1"), ShardsReleased([1]))
    await ends.a.tell(member("d", "no address"), ShardsReleased([1]))


async def test_frames_cut_anywhere_are_understood(ends: Ends) -> None:
    """A caller of our own making sends its bytes one by one."""
    ends.b.on_call = answering([b"1"])
    caller = Caller(SECRET, me=Node("a", "x"), meant=Node("b", "boot of b"), nonce=b"n" * 32)
    reader, writer = await asyncio.open_connection(*split_address(ends.b_member.address))

    async def send(data: bytes) -> None:
        for byte in data:
            writer.write(bytes((byte,)))
            await writer.drain()

    async def body() -> bytes:
        return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))

    async with asyncio.timeout(10):
        await send(wire.frame(caller.begin()))
        proof = caller.take(await body())
        assert proof is not None
        await send(wire.frame(proof))
        assert caller.take(await body()) is None
        assert caller.done
        calls = [wire.encode(wire.Call(n, Executing("n"))) for n in (1, 2)]
        await send(wire.frame_of(calls[:1]) + wire.frame_of(calls[1:]))
        answers: list[wire.Message] = []
        while len(answers) < 2:
            answers += wire.messages_of(await body())
    assert [answer.number for answer in answers if isinstance(answer, wire.Answer)] == [1, 2]
    writer.close()


# -- what is lost -------------------------------------------------------------------------------


async def test_what_was_sent_and_lost_is_told_from_what_was_not(ends: Ends) -> None:
    holding = ends.b.on_call = Holding()
    sent = asyncio.create_task(ends.call())
    await until(lambda: len(holding.asked) == 1)
    ends.incoming[0].close("made to fail")
    with pytest.raises(PeerLost) as lost:
        await sent
    assert lost.value.sent
    await ends.b.close()
    with pytest.raises(PeerLost) as lost:
        await ends.call()
    assert not lost.value.sent


async def test_the_next_call_after_a_loss_connects_anew(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duetime.cluster.tcp.RECONNECT_S", 0.0)
    ends.b.on_call = answering([b"1"])
    assert await ends.call(Executing("n")) == [b"1"]
    ends.outgoing.close("made to fail")
    assert await ends.call(Executing("n")) == [b"1"]


async def test_who_listens_no_more_answers_what_it_was_asked_before(ends: Ends) -> None:
    holding = ends.b.on_call = Holding()
    call = asyncio.create_task(ends.call(Executing("n")))
    await until(lambda: len(holding.asked) == 1)
    closing = asyncio.create_task(ends.b.close())
    await asyncio.sleep(0)
    holding.open.set()
    assert await call == [b"x"]
    await closing


async def test_a_machine_that_vanished_is_noticed_by_its_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("duetime.cluster.connection.TICK_S", 0.02)
    async with connected() as ends:
        holding = ends.b.on_call = Holding()
        call = asyncio.create_task(ends.call())
        await until(lambda: len(holding.asked) == 1)
        for connection in ends.incoming:
            assert connection._transport is not None
            connection._transport.pause_reading()
            connection._ticking.cancel()
        with pytest.raises(PeerLost, match="not heard of") as lost:
            await call
        assert lost.value.sent


async def test_a_live_owner_that_takes_too_long_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("duetime.cluster.connection.TICK_S", 0.02)
    monkeypatch.setattr("duetime.cluster.connection.CALL_TICKS_MAX", 10)
    async with connected() as ends:
        holding = ends.b.on_call = Holding()
        with pytest.raises(PeerLost, match="not answered within") as lost:
            await ends.call()
        assert lost.value.sent
        holding.open.set()
        assert await ends.call(Executing("n")) == [b"x"]  # The connection is as good as before.


async def test_who_gave_up_waiting_costs_nothing(ends: Ends) -> None:
    holding = ends.b.on_call = Holding()
    call = asyncio.create_task(ends.call(Executing("n")))
    await until(lambda: len(holding.asked) == 1)
    call.cancel()
    holding.open.set()
    assert await ends.call(Executing("n")) == [b"x"]
    await until(lambda: not ends.outgoing._pending)


# -- who gets in --------------------------------------------------------------------------------


async def test_another_secret_is_refused_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with connected(secret_of_b=shared_secret("other" * 10, api_key="")) as ends:
        for _ in range(3):
            with pytest.raises(PeerLost) as lost:
                await ends.call()
            assert not lost.value.sent
            await asyncio.sleep(0.21)
        assert not ends.b._in
    told = [record.getMessage() for record in caplog.records]
    assert told.count("stranger turned away") == 1
    assert told.count("node lost") == 1


async def test_an_address_that_another_node_has_now_is_refused(ends: Ends) -> None:
    ends.b.on_call = answering([])
    address = ends.b_member.address
    for wrong in (member("c", address), member("b", address, boot="an earlier one")):
        with pytest.raises(PeerLost, match="another node") as lost:
            await ends.a.call(wrong, GET)
        assert not lost.value.sent


async def test_a_node_that_was_started_anew_is_called_where_it_is_now(ends: Ends) -> None:
    ends.b.on_call = answering([b"old"])
    assert await ends.call(Executing("n")) == [b"old"]
    again = peers("b")
    again.introduce("b", "next boot")
    again.on_call = answering([b"new"])
    address = await again.start()
    try:
        new = member("b", address, boot="next boot")
        assert await ends.a.call(new, Executing("n")) == [b"new"]
    finally:
        await again.close()


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x00\x00\x00\x05hello",
        b"\xff" * 100_000,
        b"\x00\x00\x00\x00",
        wire.frame(wire.encode([1, 2])),
        wire.frame_of([wire.encode(wire.Call(1, Cancel(Key(1, "n", "i"))))]),
    ],
)
async def test_a_stranger_is_shown_the_door(ends: Ends, data: bytes) -> None:
    holding = ends.b.on_call = Holding()
    reader, writer = await asyncio.open_connection(*split_address(ends.b_member.address))
    writer.write(data)
    async with asyncio.timeout(2):
        with suppress(ConnectionError):  # It was closed with bytes unread.
            await reader.read()
    writer.close()
    await until(lambda: not ends.incoming and not ends.b._strangers)
    assert not holding.asked


async def test_a_stranger_who_says_nothing_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("duetime.cluster.connection.TICK_S", 0.02)
    async with connected() as ends:
        reader, writer = await asyncio.open_connection(*split_address(ends.b_member.address))
        writer.write(b"\x00\x00")
        async with asyncio.timeout(5):
            assert await reader.read() == b""
        writer.close()
        assert not ends.incoming


async def test_strangers_are_few_and_keep_nobody_out_who_is_in(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("duetime.cluster.tcp.STRANGERS_MAX", 4)
    async with connected() as ends:
        ends.b.on_call = answering([b"1"])
        assert await ends.call(Executing("n")) == [b"1"]
        writers = []
        for _ in range(30):
            _, writer = await asyncio.open_connection(*split_address(ends.b_member.address))
            writers.append(writer)
        await until(lambda: len(ends.b._strangers) == 4 and len(ends.incoming) == 5)
        assert await ends.call(Executing("n")) == [b"1"]
        for writer in writers:
            writer.close()
        await until(lambda: not ends.b._strangers)
    # One line for the address, and one for those whose address was not asked for.
    assert [record.getMessage() for record in caplog.records] == ["stranger turned away"] * 2


# -- bounds -------------------------------------------------------------------------------------


async def test_calls_beyond_the_bound_are_refused_here(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duetime.cluster.connection.CALLS_MAX", 10)
    holding = ends.b.on_call = Holding()
    calls = [asyncio.create_task(ends.call(Executing("n"))) for _ in range(10)]
    await until(lambda: len(holding.asked) == 10)
    with pytest.raises(Unavailable, match="too many operations wait for node 'b'"):
        await ends.call()
    holding.open.set()
    await asyncio.gather(*calls)
    assert await ends.call(Executing("n")) == [b"x"]


async def test_bytes_that_nobody_takes_are_bounded(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duetime.cluster.connection.QUEUED_BYTES_MAX", 100_000)
    ends.b.on_call = answering([])
    await ends.call(Executing("n"))
    (there,) = ends.incoming
    assert there._transport is not None
    there._transport.pause_reading()
    refused = 0
    calls = []
    for _ in range(20):
        calls += [asyncio.create_task(ends.call(Executing("n" * 50_000))) for _ in range(20)]
        await asyncio.sleep(0)
        refused = sum(call.done() and isinstance(call.exception(), Unavailable) for call in calls)
        await asyncio.sleep(0.01)
    assert refused
    assert ends.outgoing._queued_bytes <= 100_000
    there._transport.resume_reading()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(result) for result in results} == {list, Unavailable}


async def test_who_is_asked_too_much_at_once_reads_no_further(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    holding = ends.b.on_call = Holding()
    await ends.a.tell(ends.b_member, ShardsReleased([]))
    await until(lambda: bool(ends.incoming) and ends.incoming[0].open)
    monkeypatch.setattr("duetime.cluster.connection.CALLS_MAX", 10)
    (there,) = ends.incoming
    ends.outgoing._pending = _Uncounted()
    calls = []
    for _ in range(30):
        calls.append(asyncio.create_task(ends.call(Executing("n"))))
        await asyncio.sleep(0.001)
    await until(lambda: there._deaf)
    assert len(holding.asked) < 30
    holding.open.set()
    await asyncio.gather(*calls)
    assert not there._deaf


class _Uncounted(dict[int, Any]):
    """As another version of us might, it does not keep to the bound."""

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return bool(list(self))


async def test_a_call_too_large_for_a_frame_is_refused(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "FRAME_BYTES_MAX", 10_000)
    ends.b.on_call = answering([b"x" * 20_000])
    with pytest.raises(Unavailable, match="too large"):
        await ends.call(Executing("n" * 10_000))
    with pytest.raises(Unavailable, match="answer is too large"):
        await ends.call(Executing("n"))


async def test_an_address_in_use_is_named(ends: Ends) -> None:
    _, port = split_address(ends.b_member.address)
    taken = TcpPeers(host="127.0.0.1", port=port, secret=SECRET)
    with pytest.raises(CannotListen, match=f"127.0.0.1 port {port}"):
        await taken.start()


@pytest.mark.parametrize(
    ("advertise", "address"),
    [
        ("timers-1.internal", "timers-1.internal:{port}"),
        ("10.0.0.7:7000", "10.0.0.7:7000"),
        ("[fe80::1]", "[fe80::1]:{port}"),
    ],
)
async def test_another_address_may_be_advertised(advertise: str, address: str) -> None:
    made = TcpPeers(host="127.0.0.1", port=0, secret=SECRET, advertise=advertise)
    try:
        told = await made.start()
        assert made._server is not None
        port = made._server.sockets[0].getsockname()[1]
        assert told == address.format(port=port)
    finally:
        await made.close()


def test_addresses_are_joined_and_split() -> None:
    for host, port in (("127.0.0.1", 1), ("::1", 2), ("a.b", 3)):
        assert split_address(join_address(host, port)) == (host, port)
    for wrong in ("", "a", "a:", ":1", "a:b"):
        with pytest.raises(ValueError, match="address"):
            split_address(wrong)
