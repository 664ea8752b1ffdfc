"""How often a store asks its server for something, counted on the wire.

One mechanism for every store that is reached over TCP, whatever its protocol: a proxy counts
how often bytes come from the client after bytes went to it, or for the first time. That is one
for each statement, transaction bound or command whose answer is waited for, and one for
several that are sent in one go. Where one connection carries several questions at a time, those
that overlap may count as one.
"""

import asyncio
import math
import time

from tests.stores.proxy import Proxy

from bench.bench import BURST_FROM, SPREAD_FROM, Bench, Numbers, numbers, until
from bench.processes import Server
from bench.timers import Due

IDLE_S = 5
SPREAD_S = 5
WRITTEN_S = 1
"""After the last callback has arrived, its outcome is on its way for less than this."""


class Meter(Proxy):
    """Counts the turns of the conversation."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.turns = 0
        self._asking: set[asyncio.StreamWriter] = set()

    def passes(self, client: asyncio.StreamWriter, *, answers: bool) -> None:
        if answers:
            self._asking.discard(client)
        elif client not in self._asking:
            self._asking.add(client)
            self.turns += 1


async def round_trips(bench: Bench) -> Numbers:
    """Per 1,000 timers, created and fired: in a burst of batches, and one by one in a spread."""
    database = await bench.databases.new()
    async with (
        Meter(database.url) as meter,
        Server(meter.url, home=bench.home()) as server,
    ):
        await bench.warm_up(server)
        if not meter.turns:
            raise RuntimeError("the store finds its server by itself, past the proxy")
        idle = meter.turns
        await asyncio.sleep(IDLE_S)
        idle_per_s = (meter.turns - idle) / IDLE_S

        async def counted(due_ms: Due, last_s: float, *, one_by_one: bool) -> float:
            turns, began_s = meter.turns, time.time()
            load = bench.load_one_by_one if one_by_one else bench.load
            await load(server, due_ms)
            await until(last_s)
            arrived = await bench.receiver.count()
            if await bench.receiver.wait(len(due_ms)) < len(due_ms):
                raise RuntimeError(f"only {arrived} of {len(due_ms)} fired")
            await asyncio.sleep(WRITTEN_S)
            await bench.receiver.reset()
            own = meter.turns - turns - idle_per_s * (time.time() - began_s)
            return own / len(due_ms) * 1e3

        lead_s = bench.scale.lead_s
        due_ms = math.ceil(time.time() + lead_s) * 1000
        burst = dict.fromkeys(numbers(BURST_FROM, bench.scale.burst_timers), due_ms)
        in_burst = await counted(burst, due_ms / 1e3, one_by_one=False)
        from_ms = math.ceil(time.time() + lead_s) * 1000
        count = bench.scale.spread_per_s * SPREAD_S
        spread = {
            number: from_ms + index * SPREAD_S * 1000 // count
            for index, number in enumerate(numbers(SPREAD_FROM, count))
        }
        in_spread = await counted(spread, from_ms / 1e3 + SPREAD_S, one_by_one=True)
    return {
        "round_trips_per_1000_in_burst": in_burst,
        "round_trips_per_1000_in_spread": in_spread,
        "round_trips_per_s_idle": idle_per_s,
    }
