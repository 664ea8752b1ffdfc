"""Simulated nodes that talk to each other: in order, with delays, and through what breaks."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest
from sim.loop import ProcessLoop, Schedule
from sim.peers import Network, SimPeers

from duetime.cluster.hints import Hint, ShardsReleased
from duetime.cluster.membership import Member
from duetime.cluster.peers import Executing, Operation, PeerLost
from duetime.errors import TimerNotFound

Main = Callable[[], Awaitable[None]]


class World:
    """Node `a` asks, node `b` answers."""

    def __init__(self) -> None:
        self.schedule = Schedule()
        self.troubles: list[str] = []
        self.network = Network(Random(1))
        self.a, self.b = self._process("a"), self._process("b")
        self.asking = SimPeers(self.network, self.a)
        self.answering = SimPeers(self.network, self.b)
        self.asking.introduce("a", "1")
        self.answering.introduce("b", "1")
        self.asked: list[str] = []
        self.answering.on_call = self._answer
        self.member = Member(name="b", boot="1", address="", started_at=0, version="0")

    def _process(self, name: str) -> ProcessLoop:
        return ProcessLoop(
            self.schedule, name, troubled=lambda error, text: self.troubles.append(str(error))
        )

    async def _answer(self, operation: Operation) -> Any:
        assert isinstance(operation, Executing)
        self.asked.append(operation.namespace)
        if operation.namespace == "absent":
            raise TimerNotFound("n", "i")
        if operation.namespace == "never":
            await asyncio.Event().wait()
        return [b"x"]

    def run(self, main: Main) -> None:
        async def live() -> None:
            address = await self.answering.start()
            self.member = Member(name="b", boot="1", address=address, started_at=0, version="0")
            await main()
            self.schedule.stop()

        self.a.call_soon(lambda: setattr(self, "keep", self.a.create_task(live())))
        self.schedule.run()
        assert not self.troubles
        task: asyncio.Task[None] = self.keep  # type: ignore[attr-defined]
        task.result()

    async def call(self, namespace: str) -> Any:
        return await self.asking.call(self.member, Executing(namespace))


@pytest.fixture
def world() -> World:
    return World()


def test_what_is_asked_is_answered_in_virtual_time_and_in_order(world: World) -> None:
    async def main() -> None:
        names = [f"n{n}" for n in range(50)]
        tasks = [world.a.create_task(world.call(name)) for name in names]
        assert [await task for task in tasks] == [[b"x"]] * 50
        assert world.asked == names
        with pytest.raises(TimerNotFound):
            await world.call("absent")

    world.run(main)
    assert 0 < world.schedule.now_us < 10_000


def test_a_node_that_dies_frozen_or_is_cut_off_does_not_answer(world: World) -> None:
    async def lost(sent: bool) -> None:
        with pytest.raises(PeerLost) as error:
            await world.call("never")
        assert error.value.sent is sent

    async def main() -> None:
        world.network.cut.add("b")
        await lost(sent=False)
        world.network.heal()
        world.b.freeze()
        at = world.a.time()
        await lost(sent=True)
        assert world.a.time() - at >= 3
        world.b.resume()
        world.a.call_later(0.5, world.b.kill)
        world.a.call_later(0.5, world.answering.die)
        at = world.a.time()
        await lost(sent=True)
        assert world.a.time() - at < 1
        await lost(sent=False)

    world.run(main)


def test_a_connection_that_breaks_leaves_open_whether_it_was_done(world: World) -> None:
    async def main() -> None:
        world.network.lost = 0.5
        calls = [world.a.create_task(world.call(f"n{n}")) for n in range(100)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        lost = sum(isinstance(outcome, PeerLost) and outcome.sent for outcome in outcomes)
        assert 20 < lost < 100
        assert 100 - lost < len(world.asked) < 100

    world.run(main)


def test_another_life_of_the_node_is_not_taken_for_it(world: World) -> None:
    async def main() -> None:
        world.answering.introduce("b", "2")
        with pytest.raises(PeerLost) as error:
            await world.call("n")
        assert not error.value.sent

    world.run(main)


def test_hints_arrive_unless_the_network_fails(world: World) -> None:
    heard: list[Hint] = []

    async def main() -> None:
        world.answering.on_message = heard.append
        await world.asking.tell(world.member, ShardsReleased([1]))
        await asyncio.sleep(0.1)
        world.network.lost = 1.0
        await world.asking.tell(world.member, ShardsReleased([2]))
        await asyncio.sleep(0.1)

    world.run(main)
    assert heard == [ShardsReleased([1])]
