"""What is done to a cluster, how often, and what must hold beside the accounts."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable

from msgspec import Struct
from scripts.servers import Postgresql
from tests.acceptance.processes import KEY, eventually

from chaos.cluster.world import ClusterWorld, Node, cluster
from chaos.load import load
from chaos.report import Report, report
from chaos.served import now
from duetime.admin import Admin

RUN_S = 2.0
TAKEOVER_MS_MAX = 8_000
DRAIN_MS_MAX = 2_000
TRUSTED_MS = 3_000
"""Three quarters of MEMBER_TIMEOUT: who is cut off goes on for so long."""
BACK_S = (0.0, 1.5)
FROZEN_S = (6.0, 8.0)
CUT_S = ((1.0, 2.5), (6.0, 8.0))
"""Too short for others to take over, and long enough."""
DOWN_S = (0.0, 1.5)
WORKERS = 3


class Fault(Struct, frozen=True, kw_only=True):
    """One kind of fault."""

    what: str
    times: int
    do: Callable[["Suffering"], Awaitable[None]]
    """Once."""
    duplicates: bool = False
    """Whether the accounts may explain some. Else there must be none."""
    takeover: bool = False
    """Whether others take over, and how soon is stated."""
    late_ms_max: int | None = None
    answers_all: bool = False
    """Whether each request must be answered, at the latest by the second node."""
    workers: int = 0


class Suffering(Struct):
    """The cluster a fault is done to, and what there is to say of it."""

    world: ClusterWorld
    server: Postgresql
    time: int = 0
    last: Node | None = None
    took_ms: list[int] = []


async def run(fault: Fault, server: Postgresql, seed: int, *, times: int | None = None) -> Report:
    """Do the fault so often to a cluster of its own, under load, and account for each timer."""
    times = fault.times if times is None else times
    async with cluster(server, seed=seed, workers=fault.workers) as it:
        suffering = Suffering(it, server)
        async with load(it):
            await it.pause(RUN_S)
            it.failed = 0
            for suffering.time in range(times):
                await fault.do(suffering)
            await it.whole()
            await it.pause(RUN_S)
        verdict = await it.verdict()
    facts = [f"{it.failed} requests without an answer from two nodes"]
    late_ms = it.late_ms()
    if fault.late_ms_max is not None and late_ms > fault.late_ms_max:
        verdict.problems.append(f"a callback came {late_ms} ms late")
    if fault.answers_all and it.failed:
        verdict.problems.append(f"{it.failed} requests failed, asked twice")
    if fault.takeover:
        took = it.takeovers_ms()
        facts.append(f"first callback of the shards taken over after {_range(took)} ms")
        if took and max(took) > TAKEOVER_MS_MAX:
            verdict.problems.append(f"shards were taken over after {max(took)} ms")
    if suffering.took_ms:
        facts.append(f"all shards moved within {_range(suffering.took_ms)} ms")
    found = report(
        f"{times} {fault.what}", verdict, "; ".join(facts), duplicates_allowed=fault.duplicates
    )
    found.times, found.late_ms = times, late_ms
    found.line += f", worst lateness {late_ms / 1000:.1f} s"
    return found


def _range(values: list[int]) -> str:
    return f"{min(values)}-{max(values)}" if values else "no"


# -- processes ----------------------------------------------------------------------------


async def _kill(it: Suffering) -> None:
    """The next one dies as soon as this one is back, and has some of its shards or none; never
    the same one: what dies more often than others can notice has its shards as long as it likes."""
    world = it.world
    node = it.last = world.chance.choice([node for node in world.nodes if node is not it.last])
    await node.kill()
    await world.remember(node.name)
    await node.start()
    await world.pause(world.chance.uniform(*BACK_S))


async def _freeze(it: Suffering) -> None:
    world = it.world
    node = world.any_node()
    node.signal(signal.SIGSTOP)
    node.suspected = True
    await world.remember(node.name)
    await world.pause(world.chance.uniform(*FROZEN_S))
    node.signal(signal.SIGCONT)
    await world.pause(world.chance.uniform(0, RUN_S))
    node.suspected = False
    await world.whole()


async def _kill_a_worker(it: Suffering) -> None:
    world = it.world
    (parent,) = world.nodes
    number, name = world.chance.choice(sorted(parent.workers().items()))
    os.kill(int(name.rpartition(":")[2].partition("/")[0]), signal.SIGKILL)
    await world.remember(name)
    await eventually(lambda: parent.workers()[number] != name)
    await world.whole()
    await world.pause(world.chance.uniform(*BACK_S))


# -- ways ---------------------------------------------------------------------------------


async def _cut_from_database(it: Suffering) -> None:
    """By turns for a moment or until others take over, as when a cable is pulled or with a
    reset, every other time from its peers as well."""
    world = it.world
    node = world.any_node()
    ways = [node.database, node.peers] if it.time % 4 >= 2 else [node.database]
    pulled = it.time % 3 != 0
    for way in ways:
        way.refuses = True
        if pulled:
            way.hold()
        else:
            way.cut()
    node.suspected = True
    await world.remember(node.name, trusted_ms=TRUSTED_MS)
    await world.pause(world.chance.uniform(*CUT_S[it.time % 2]))
    for way in ways:
        way.refuses = False
        way.let_go()
    await world.pause(world.chance.uniform(0, RUN_S))
    node.suspected = False
    await world.whole()


async def _cut_from_peers(it: Suffering) -> None:
    """By turns one that the others do not reach, and all from each other."""
    world = it.world
    nodes = [world.any_node()] if it.time % 2 else world.nodes
    for node in nodes:
        node.peers.refuses = True
        if world.chance.random() < 0.5:
            node.peers.hold()
        else:
            node.peers.cut()
    await world.pause(world.chance.uniform(1.0, 4.0))
    for node in nodes:
        node.peers.refuses = False
        node.peers.let_go()
    await world.pause(RUN_S)


async def _restart_database(it: Suffering) -> None:
    """As `pg_ctl restart` does, fast and immediate by turns."""
    how = signal.SIGQUIT if it.time % 2 else signal.SIGINT
    await asyncio.to_thread(it.server.stop, how)
    await it.world.pause(it.world.chance.uniform(*DOWN_S))
    await asyncio.to_thread(it.server.start)
    await it.world.whole()
    await it.world.pause(RUN_S)


# -- what people do -----------------------------------------------------------------------


async def _restart_in_turn(it: Suffering) -> None:
    """Each time the next node, once the last one is back."""
    world = it.world
    node = world.nodes[it.time % len(world.nodes)]
    code = await node.stop()
    if code != 0:
        world.problems.append(f"told to stop, a node ended with {code}")
    await node.start()
    await world.whole()


async def _drain(it: Suffering) -> None:
    """As `duetime cluster drain` does, and then its undoing."""
    world = it.world
    node = world.any_node()
    admin = Admin(world.any_node().url, KEY)
    began = now()
    await asyncio.to_thread(admin.drain, node.name, undo=False)
    async with asyncio.timeout(DRAIN_MS_MAX * 5 / 1000):
        while {None, node.name} & set((await world.owners()).values()):
            await asyncio.sleep(0)
    it.took_ms.append(now() - began)
    if it.took_ms[-1] > DRAIN_MS_MAX:
        world.problems.append(f"a drain took {it.took_ms[-1]} ms")
    await world.pause(RUN_S)
    await asyncio.to_thread(admin.drain, node.name, undo=True)
    await world.whole()


FAULTS = {
    "kill": Fault(what="kills of a node", times=9, do=_kill, duplicates=True, takeover=True),
    "freeze": Fault(what="freezes of a node", times=5, do=_freeze, duplicates=True, takeover=True),
    "database-cut": Fault(
        what="cuts of a node from the database",
        times=8,
        do=_cut_from_database,
        duplicates=True,
    ),
    "peers-cut": Fault(what="cuts between nodes", times=6, do=_cut_from_peers),
    "database-restart": Fault(what="restarts of the database", times=6, do=_restart_database),
    "rolling": Fault(
        what="restarts of nodes in turn",
        times=6,
        do=_restart_in_turn,
        late_ms_max=2_000,
        answers_all=True,
    ),
    "drain": Fault(what="drains of a node", times=5, do=_drain, answers_all=True),
    "workers": Fault(
        what="kills of a worker",
        times=6,
        do=_kill_a_worker,
        duplicates=True,
        takeover=True,
        workers=WORKERS,
    ),
}
