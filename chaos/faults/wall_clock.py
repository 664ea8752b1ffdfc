"""The wall clock is set forth and back by an hour while timers fire."""

from collections.abc import Iterable, Iterator, Sequence

from tests.acceptance.processes import instant_passed

from chaos.ledger import Arrival, Record
from chaos.load import load
from chaos.report import Report, report
from chaos.served import now
from chaos.world import world

HOUR_MS = 3_600_000
RUN_S = 4.0
OFFSETS = (HOUR_MS, 0, -HOUR_MS, 0)
LATE_MS_MAX = 2_000
"""The alarm sleeps a second at most; the rest is the machine's."""

Step = tuple[int, int]


async def run(seed: int) -> Report:
    async with world("wall-clock", seed=seed, module="chaos.stepped") as it:
        async with load(it):
            await instant_passed(now() + int(RUN_S * 1000))
            for offset in OFFSETS:
                it.set_wall(offset)
                await instant_passed(now() + int(RUN_S * 1000))
        # What was meant for the hour that was taken back must become due too.
        it.set_wall(2 * HOUR_MS)
        verdict = await it.verdict()
    lateness = sorted(_lateness(it.records, it.arrivals, it.steps))
    if lateness[-1] > LATE_MS_MAX:
        verdict.problems.append(f"a timer was {lateness[-1]} ms late by the server's own clock")
    return report(
        f"{len(OFFSETS)} steps of the wall clock by an hour",
        verdict,
        f"{len(lateness)} created and due between two steps, at most {lateness[-1]} ms late",
    )


def _lateness(
    records: Iterable[Record], arrivals: Sequence[Arrival], steps: Sequence[Step]
) -> Iterator[int]:
    """How late those were that were created and due while the clock was left alone."""
    first: dict[tuple[str, int], int] = {}
    for arrival in arrivals:
        first.setdefault((arrival.firing.key, arrival.firing.revision), arrival.at)
    ends = [since for since, _ in steps[1:]]
    periods = [(since, end, offset) for (since, offset), end in zip(steps, ends, strict=False)]
    for record in records:
        for op in record.ops:
            arrived = first.get((record.key, op.revision))
            for since, end, offset in periods:
                due = op.due - offset
                if arrived and since < op.sent < due < end - LATE_MS_MAX:
                    yield arrived - due
