"""The few numbers that every store is compared by."""

from scripts.source_lines import source_lines

from bench.bench import Bench, Numbers
from bench.scenarios.round_trips import round_trips
from bench.scenarios.workloads import burst, spread

NOT_FIRED = ("missing", "early", "duplicates")


async def compare(bench: Bench) -> Numbers:
    """A burst, a spread, what they ask of the store's server, and how much code the store is."""
    store = (await bench.databases.new()).store()
    at_once, over_time = await burst(bench), await spread(bench)
    return {
        "accepted_per_s": at_once["load_per_s"],
        "fired_per_s": at_once["drain_per_s"],
        "durable_per_s": at_once["durable_per_s"],
        "late_p50_ms": over_time["late_p50_ms"],
        "late_p99_ms": over_time["late_p99_ms"],
        **{name: at_once[name] + over_time[name] for name in NOT_FIRED},
        **(await round_trips(bench) if store.traits.shared else {}),
        "source_lines": source_lines(store.traits.name),
    }
