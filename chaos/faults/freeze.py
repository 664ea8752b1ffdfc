"""SIGSTOP and SIGCONT: the process stands still, the world does not."""

import signal

from tests.acceptance.processes import instant_passed

from chaos.load import load
from chaos.report import Report, report
from chaos.served import now
from chaos.world import world

FREEZES = 4
RUN_S = 2.0
FROZEN_S = (1.0, 5.0)


async def run(seed: int) -> Report:
    async with world("freeze", seed=seed) as it:
        async with load(it):
            for _ in range(FREEZES):
                await instant_passed(now() + int(RUN_S * 1000))
                assert it.server is not None
                it.server.signal(signal.SIGSTOP)
                await instant_passed(now() + int(it.chance.uniform(*FROZEN_S) * 1000))
                it.server.signal(signal.SIGCONT)
            await it.ready()
        verdict = await it.verdict()
    return report(f"{FREEZES} freezes", verdict, "stopped for 1 to 5 s each")
