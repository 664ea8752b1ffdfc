"""Killed at any moment: nothing lost, nothing early, and few duplicates."""

from collections import Counter
from pathlib import Path

import pytest

from duetime.instants import parse_instant
from duetime.testing.receiver import Receiver
from tests.acceptance.processes import Duetime, instant_in, instant_passed, serving

IN_FLIGHT = 200
UNRECORDED = 200
BOUNDS = {
    "IN_FLIGHT_MAX": str(IN_FLIGHT),
    "IN_FLIGHT_PER_DESTINATION_MAX": str(IN_FLIGHT),
    "UNRECORDED_MAX": str(UNRECORDED),
}


async def create_burst(duetime: Duetime, receiver: Receiver, timers: int, due: str) -> None:
    for first in range(0, timers, 1_000):
        batch = [
            {"namespace": "default", "id": f"t{n}", "executeAt": due, "callbackUrl": receiver.url}
            for n in range(first, min(first + 1_000, timers))
        ]
        status, answer = await duetime.call("POST", "/timers/batch", {"timers": batch})
        assert status == 200
        assert all("timer" in result for result in answer["results"])


class Arrived:
    """Counts different timers, looking at each request once."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._ids: set[str] = set()
        self._looked_at = 0

    def count(self) -> int:
        requests = self._receiver.requests
        self._ids.update(r.headers["x-timer-id"] for r in requests[self._looked_at :])
        self._looked_at = len(requests)
        return len(self._ids)


async def killed_in_the_middle(directory: Path, *, timers: int, kills: int) -> None:
    """A burst during which the process is killed so many times, evenly spread over it."""
    async with Receiver() as receiver:
        due = instant_in(3)
        for kill in range(kills):
            goal = timers * (kill + 1) // (kills + 3)
            async with serving(directory, **BOUNDS) as duetime:
                if kill == 0:
                    await create_burst(duetime, receiver, timers, due)
                await receiver.until(lambda: len(receiver.requests) >= goal)  # noqa: B023
                await duetime.kill()
        async with serving(directory, **BOUNDS):
            arrived = Arrived(receiver)
            await receiver.until(lambda: arrived.count() == timers, timeout_s=40)

        times = Counter(request.headers["x-timer-id"] for request in receiver.requests)
        assert set(times) == {f"t{n}" for n in range(timers)}
        assert min(request.at for request in receiver.requests) >= parse_instant(due)
        assert sum(times.values()) - timers <= kills * (IN_FLIGHT + UNRECORDED)


async def test_killed_once_in_a_burst_nothing_is_lost_or_early(tmp_path: Path) -> None:
    await killed_in_the_middle(tmp_path, timers=3_000, kills=1)


@pytest.mark.slow
async def test_killed_again_and_again_nothing_is_lost_or_early(tmp_path: Path) -> None:
    await killed_in_the_middle(tmp_path, timers=10_000, kills=5)


async def test_what_became_due_while_it_was_down_fires_when_it_is_back(tmp_path: Path) -> None:
    async with Receiver() as receiver:
        due = instant_in(1.5)
        async with serving(tmp_path) as duetime:
            await create_burst(duetime, receiver, 50, due)
            await duetime.kill()
        await instant_passed(parse_instant(due))
        assert receiver.requests == []
        async with serving(tmp_path) as again:
            await receiver.until(lambda: len(receiver.requests) == 50)
            await again.until_status("t0", "completed")
        assert len({request.headers["x-timer-id"] for request in receiver.requests}) == 50


async def test_a_canceled_timer_stays_silent_after_a_kill(tmp_path: Path) -> None:
    async with Receiver() as receiver:
        async with serving(tmp_path) as duetime:
            await duetime.v1(
                "timers/create", id="canceled", executeAt=instant_in(1.5), callbackUrl=receiver.url
            )
            await duetime.v1(
                "timers/create", id="kept", executeAt=instant_in(1.7), callbackUrl=receiver.url
            )
            await duetime.v1("timers/delete", timerId="canceled")
            await duetime.kill()
        async with serving(tmp_path) as again:
            await again.until_status("kept", "completed")
            timer = await again.v1("timers/get", timerId="canceled")
            assert timer["status"] == "canceled"
        assert [request.headers["x-timer-id"] for request in receiver.requests] == ["kept"]
