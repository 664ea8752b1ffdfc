"""The connection between simulated nodes: slow, cut, and lossy as the weather wants.

What travels is encoded as on a real one, so that nothing passes which a socket would not let.
Order is kept for each pair of nodes, as a connection does.
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from duetime.cluster import wire
from duetime.cluster.hints import Hint
from duetime.cluster.membership import Member
from duetime.cluster.peers import Operation, PeerFailed, PeerLost
from duetime.errors import RequestError
from sim.loop import ProcessLoop

SILENCE_S = 3.0
"""After this long a node that says nothing is given up, as `connection` does."""


class Network:
    """Who listens where, and how well they hear each other.

    `lost` is the share of calls during which the connection breaks, before they arrive or
    before they are answered. Between names in `cut` and all others nothing passes.
    """

    def __init__(self, random: Random, *, delay_ms: tuple[float, float] = (0.1, 1.0)) -> None:
        self.delay_ms = delay_ms
        self.lost = 0.0
        self.cut: set[str] = set()
        self._random = random
        self._listening: dict[str, SimPeers] = {}
        self._arrivals: dict[tuple[str, str], float] = {}
        self._ports = 0

    def heal(self) -> None:
        """Everybody hears everybody."""
        self.lost = 0.0
        self.cut.clear()

    def listen(self, peers: "SimPeers") -> str:
        self._ports += 1
        address = f"sim:{self._ports}"
        self._listening[address] = peers
        return address

    def silence(self, address: str) -> None:
        self._listening.pop(address, None)

    def find(self, member: Member) -> "SimPeers | None":
        """Who listens there, if it is the node that is meant."""
        found = self._listening.get(member.address)
        return found if found is not None and found.is_node(member.name, member.boot) else None

    def hears(self, one: str, other: str) -> bool:
        return one == other or not ({one, other} & self.cut)

    def breaks(self) -> bool:
        return self.lost > 0 and self._random.random() < self.lost

    def trip(self, sender: str, receiver: str, loop: ProcessLoop) -> float:
        """How long what is sent now takes: never less than what was sent before it."""
        low, high = self.delay_ms
        now = loop.time()
        arrival = now + (low + (high - low) * self._random.random()) / 1000
        pair = (sender, receiver)
        self._arrivals[pair] = arrival = max(arrival, self._arrivals.get(pair, 0.0))
        return arrival - now


class SimPeers:
    """See `Peers`. `die` when the process does."""

    def __init__(self, network: Network, loop: ProcessLoop) -> None:
        self.on_message: Callable[[Hint], None] = lambda hint: None
        self.on_call: Callable[[Operation], Awaitable[Any]] = _nobody
        self._network = network
        self._loop = loop
        self._name = self._boot = self._address = ""
        self._asked: dict[_Exchange, None] = {}
        self._serving: dict[asyncio.Task[None], None] = {}

    def introduce(self, name: str, boot: str) -> None:
        self._name, self._boot = name, boot

    def is_node(self, name: str, boot: str) -> bool:
        return (self._name, self._boot) == (name, boot)

    async def start(self) -> str:
        self._address = self._network.listen(self)
        return self._address

    async def call(self, member: Member, operation: Operation) -> Any:
        network = self._network
        there = network.find(member)
        if there is None or not network.hears(self._name, member.name):
            await asyncio.sleep(network.trip(self._name, member.name, self._loop))
            raise PeerLost(member.name, "it could not be reached", sent=False)
        exchange = _Exchange(self._loop, operation, member.name)
        there._asked[exchange] = None
        if network.breaks():
            self._loop.call_later(0.01, exchange.lost)
        else:
            body = wire.encode([wire.Call(1, operation)])
            delay_s = network.trip(self._name, member.name, self._loop)
            there._loop.call_later(delay_s, there._arrive, exchange, self._name, body)
        late = self._loop.call_later(SILENCE_S, exchange.lost)
        try:
            return await exchange.answer
        finally:
            late.cancel()
            there._asked.pop(exchange, None)

    async def tell(self, member: Member, message: Hint) -> None:
        network = self._network
        there = network.find(member)
        if there is not None and network.hears(self._name, member.name) and not network.breaks():
            delay_s = network.trip(self._name, member.name, self._loop)
            there._loop.call_later(delay_s, there._hear, message)

    async def close(self) -> None:
        self._network.silence(self._address)
        if self._serving:
            await asyncio.wait(self._serving, timeout=2.0)
        self.die()

    def die(self) -> None:
        """The process is no more: who waits for its answers learns of it."""
        self._network.silence(self._address)
        for exchange in list(self._asked):
            exchange.caller.call_later(0.001, exchange.lost)

    def _hear(self, message: Hint) -> None:
        self.on_message(message)

    def _arrive(self, exchange: "_Exchange", sender: str, body: bytes) -> None:
        (call,) = wire.messages_of(body)
        assert isinstance(call, wire.Call)
        task = self._loop.create_task(self._serve(exchange, sender, call))
        self._serving[task] = None
        task.add_done_callback(self._served)

    def _served(self, task: asyncio.Task[None]) -> None:
        self._serving.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._loop.call_exception_handler({"message": "a call died", "exception": error})

    async def _serve(self, exchange: "_Exchange", sender: str, call: wire.Call) -> None:
        try:
            message = wire.answer(1, call.operation, await self.on_call(call.operation))
        except RequestError as error:
            message = wire.encode(wire.Failed(1, wire.failure_of(error)))
        network = self._network
        if network.hears(self._name, sender) and not network.breaks():
            delay_s = network.trip(self._name, sender, self._loop)
            exchange.caller.call_later(delay_s, exchange.settle, message)


class _Exchange:
    """A call, and what came of it."""

    def __init__(self, caller: ProcessLoop, operation: Operation, callee: str) -> None:
        self.caller = caller
        self.answer: asyncio.Future[Any] = caller.create_future()
        self._read = wire.reader_of(operation)
        self._callee = callee

    def lost(self) -> None:
        if not self.answer.done():
            reason = "the connection was lost"
            self.answer.set_exception(PeerLost(self._callee, reason, sent=True))

    def settle(self, message: bytes) -> None:
        if self.answer.done():
            return
        (answer,) = wire.messages_of(b"\x91" + message)
        if isinstance(answer, wire.Answer):
            self.answer.set_result(self._read(answer.value))
        else:
            assert isinstance(answer, wire.Failed)
            self.answer.set_exception(wire.error_of(answer.failure))


async def _nobody(operation: Operation) -> Any:
    raise PeerFailed
