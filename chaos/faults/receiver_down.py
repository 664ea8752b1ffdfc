"""The receiver is killed and comes back: callbacks fail meanwhile and are retried."""

from tests.acceptance.processes import instant_passed

from chaos.load import load
from chaos.report import Report, report
from chaos.served import now
from chaos.world import world

OUTAGES = 3
RUN_S = 2.0
DOWN_S = (1.0, 3.0)


async def run(seed: int) -> Report:
    async with world("receiver-down", seed=seed) as it:
        async with load(it):
            for _ in range(OUTAGES):
                await instant_passed(now() + int(RUN_S * 1000))
                await it.receiver.kill()
                await instant_passed(now() + int(it.chance.uniform(*DOWN_S) * 1000))
                await it.receiver.start()
            await it.ready()
        verdict = await it.verdict()
    return report(f"{OUTAGES} outages of the receiver", verdict, "down for 1 to 3 s each")
