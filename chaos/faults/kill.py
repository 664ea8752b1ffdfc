"""kill -9 at random moments, start-up included; each life has bounds of its own."""

from tests.acceptance.processes import instant_passed

from chaos.load import load
from chaos.report import Report, report
from chaos.served import now
from chaos.world import World, world

KILLS = 25
LIFE_S = (0.2, 3.5)
START_LIFE_S = (0.05, 0.9)
# Small bounds bring the borders of windows, pages and batches into every run.
SETTINGS = {
    "LOOKAHEAD_MAX": ("1s", "5s", "5m"),
    "WINDOW_PAGE_TIMERS": ("10", "100", "1000"),
    "WRITE_BATCH_TIMERS_MAX": ("10", "4000"),
    "IN_FLIGHT_PER_DESTINATION_MAX": ("50", "200"),
    "SAFETY_READ": ("1s", "180s"),
    "PURGE_INTERVAL": ("1s", "300s"),
}


async def run(seed: int) -> Report:
    async with world("kill", seed=seed) as it:
        async with load(it):
            for _ in range(KILLS):
                await _live(it, it.chance.uniform(*LIFE_S))
                await it.kill()
                while len(it.kills) < KILLS and it.chance.random() < 0.15:
                    await it.start_and_kill(it.chance.uniform(*START_LIFE_S))
                it.settings |= {name: it.chance.choice(values) for name, values in SETTINGS.items()}
                await it.start()
                if len(it.kills) >= KILLS:
                    break
            await _live(it, 1.0)
        verdict = await it.verdict()
    unfinished = sum(len(kill.unfinished) for kill in it.kills) // len(it.kills)
    return report(
        f"{len(it.kills)} kills",
        verdict,
        f"{unfinished} timers unfinished at a kill on average",
        duplicates_allowed=True,
    )


async def _live(it: World, seconds: float) -> None:
    await instant_passed(now() + int(seconds * 1000))
