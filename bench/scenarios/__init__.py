"""The scenarios by name, and the stores that each one makes sense on."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from bench.bench import Bench, Numbers
from bench.databases import SQLITE
from bench.limits import limits
from bench.scenarios.cluster import drain, takeover, workers
from bench.scenarios.commits import fence, group_commit
from bench.scenarios.compare import compare
from bench.scenarios.round_trips import round_trips
from bench.scenarios.shards import idle_shards
from bench.scenarios.wear import wear
from bench.scenarios.workloads import accept, backlog, burst, burst_loaded, kill, spread
from duetime.store import Traits


class Scenario(NamedTuple):
    run: Callable[[Bench], Awaitable[Numbers]]
    suits: Callable[[Traits], bool] = lambda traits: True
    """Whether it says anything about a store."""


def _alone(traits: Traits) -> bool:
    return traits.name == SQLITE


def _shared(traits: Traits) -> bool:
    return traits.shared


def _postgresql(traits: Traits) -> bool:
    return traits.name == "postgresql"


SCENARIOS = {
    "limits": Scenario(limits, _alone),
    "burst": Scenario(burst),
    "burst-loaded": Scenario(burst_loaded),
    "spread": Scenario(spread),
    "backlog": Scenario(backlog),
    "accept": Scenario(accept),
    "kill": Scenario(kill),
    "idle-shards": Scenario(idle_shards),
    "group-commit": Scenario(group_commit, _postgresql),
    "fence": Scenario(fence),
    "round-trips": Scenario(round_trips, _shared),
    "workers": Scenario(workers, _shared),
    "takeover": Scenario(takeover, _shared),
    "drain": Scenario(drain, _shared),
    "wear": Scenario(wear, _postgresql),
    "compare": Scenario(compare),
}
