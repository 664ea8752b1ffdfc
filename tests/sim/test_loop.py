"""Virtual time, and what befalls simulated processes."""

import asyncio
from collections.abc import Awaitable, Callable

from sim.clock import EPOCH_MS, SimClock
from sim.loop import Livelock, ProcessLoop, Schedule


class Bench:
    """Processes on one schedule, and what they had to say."""

    def __init__(self) -> None:
        self.schedule = Schedule()
        self.said: list[tuple[float, str]] = []
        self.troubles: list[str] = []

    def process(self, name: str, main: Callable[[], Awaitable[None]]) -> ProcessLoop:
        loop = ProcessLoop(
            self.schedule, name, troubled=lambda error, message: self.troubles.append(str(error))
        )

        async def run() -> None:
            await main()

        loop.call_soon(lambda: setattr(loop, "main", loop.create_task(run())))
        return loop

    def say(self, what: str) -> None:
        self.said.append((self.schedule.now_us / 1e6, what))


def test_time_jumps_to_the_next_timer_and_ties_keep_their_order() -> None:
    bench = Bench()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for name in "abc":
            loop.call_later(3_600, bench.say, name)
        await asyncio.sleep(7_200)
        bench.say("end")

    bench.process("p", main)
    bench.schedule.run()
    assert bench.said == [(3600, "a"), (3600, "b"), (3600, "c"), (7200, "end")]


def test_what_asyncio_offers_to_wait_with_works_in_virtual_time() -> None:
    bench = Bench()

    async def main() -> None:
        try:
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        except TimeoutError:
            bench.say("timeout")
        try:
            await asyncio.wait_for(asyncio.sleep(10), 3)
        except TimeoutError:
            bench.say("wait_for")
        async with asyncio.Lock():
            await asyncio.gather(asyncio.sleep(1), asyncio.sleep(2))
        bench.say("gather")

    bench.process("p", main)
    bench.schedule.run()
    assert bench.said == [(5, "timeout"), (8, "wait_for"), (10, "gather")]


def test_a_frozen_process_does_afterwards_what_came_due_meanwhile() -> None:
    bench = Bench()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for at in (1, 2, 3):
            loop.call_later(at, bench.say, str(at))

    process = bench.process("p", main)

    async def other() -> None:
        await asyncio.sleep(1.5)
        process.freeze()
        await asyncio.sleep(8.5)
        process.resume()

    bench.process("q", other)
    bench.schedule.run()
    assert bench.said == [(1, "1"), (10, "2"), (10, "3")]


def test_a_killed_process_runs_nothing_more_that_others_could_notice() -> None:
    bench = Bench()

    async def main() -> None:
        try:
            await asyncio.sleep(5)
        finally:
            asyncio.get_running_loop().call_soon(bench.say, "a dead process spoke")
            asyncio.create_task(asyncio.sleep(0))  # noqa: RUF006 - it must not even begin.

    process = bench.process("p", main)

    async def other() -> None:
        await asyncio.sleep(1)
        process.kill()
        await asyncio.sleep(10)

    bench.process("q", other)
    bench.schedule.run()
    assert bench.said == []
    assert bench.troubles == []


def test_an_exception_that_nobody_catches_is_heard_of_and_stops_nothing() -> None:
    bench = Bench()

    async def main() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)
        bench.say("still there")

    bench.process("p", main)
    bench.schedule.run()
    assert bench.troubles == ["division by zero"]
    assert bench.said == [(1, "still there")]


def test_going_round_in_one_instant_is_noticed() -> None:
    bench = Bench()

    async def main() -> None:
        while True:
            await asyncio.sleep(0)

    process = bench.process("p", main)
    try:
        bench.schedule.run()
    except Livelock:
        process.kill()
    else:
        raise AssertionError("it should not have ended")


def test_a_clock_is_off_drifts_and_can_be_set_and_monotonic_time_does_not_care() -> None:
    schedule = Schedule()
    clock = SimClock(schedule, skew_ms=250, drift_ppm=500_000)
    assert clock.now() == EPOCH_MS + 250
    schedule.now_us = 10_000_000
    assert clock.lead_ms() == 5_250
    clock.step(-3_600_000)
    assert clock.lead_ms() == 5_250 - 3_600_000
    assert clock.monotonic() == 10.0
    at = clock.now() + 5
    schedule.now_us += int(clock.until(at) * 1e6) + 1
    assert clock.now() == at
