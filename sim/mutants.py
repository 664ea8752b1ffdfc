"""Proof that the checkers can fail: the engine with one mistake put in, caught by a seed.

Each mutant is an edit of a function's source, compiled in this process only. The text that
it replaces must be there exactly once, so that a mutant cannot go stale in silence.
"""

import importlib
import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from sim.world import World


class Edit(NamedTuple):
    """In `module:Class.function` (or `module:function`), `old` becomes `new`."""

    where: str
    old: str
    new: str


class Caught(NamedTuple):
    """What gave a mutant away."""

    checker: str
    message: str
    seed: int


_SHARD = "duetime.shard:Shard."
_NODE = "duetime.node:Node."
_FIRING = "duetime.firing:Firing."
_WRITER = "duetime.writer:Writer."
_WINDOW = "duetime.window:Window."
_COORDINATOR_PLAN = "duetime.cluster.coordinator:plan"
_OPERATIONS = "duetime.operations:Operations."

MUTANTS: dict[str, tuple[Edit, ...]] = {
    "the store checks no fence": (
        Edit(
            "duetime.stores.memory:MemoryStore._holds",
            "return held is not None and held.version == lease.version",
            "return held is not None",
        ),
    ),
    "a superseded write counts as written": (
        Edit(_WRITER + "_write", "if shard.number in superseded:", "if False:"),
    ),
    "a failed write counts as written": (
        Edit(_WRITER + "_write", "shard.failed(writes)", "shard.written(writes)"),
    ),
    "callers are answered before the write": (
        Edit(
            _WRITER + "_write",
            "superseded = await self._store.apply(batches)",
            "[w.ack.settle() for _, ws in parts for w in ws if w.ack and w.ack._left == 1]\n"
            "        superseded = await self._store.apply(batches)",
        ),
    ),
    "a put at the window's very end is left out": (
        Edit(_SHARD + "written", "(put.execute_at, uuid) <=", "(put.execute_at, uuid) <"),
    ),
    "the next page begins after the window's last instant": (
        Edit(
            _SHARD + "_load",
            "self.window.loaded_to,",
            "Cursor(self.window.loaded_to.execute_at, _LAST_UUID),",
        ),
    ),
    "a page's end is the read's end": (
        Edit(
            _SHARD + "loaded",
            "window.extend(timers, page.timers[-1].cursor)",
            "window.extend(timers, Cursor(read.until, _LAST_UUID))",
        ),
    ),
    "what is put while a page is read is forgotten": (
        Edit(
            _SHARD + "loaded",
            "if put is not None and put.cursor <= window.loaded_to:",
            "if False:",
        ),
    ),
    "writes during a page's reading are not noted": (
        Edit(_SHARD + "written", "settled[uuid] = beyond", "pass"),
    ),
    "rows that were settled while reading are believed": (
        Edit(_SHARD + "_unknown", "uuid in settled or", "False or"),
    ),
    "rows of executing timers are believed": (
        Edit(_SHARD + "_unknown", "attempt = executing.get(uuid)", "attempt = None"),
    ),
    "rows set aside are not brought back": (
        Edit(_SHARD + "release", "if aside is not None:", "if False:"),
    ),
    "a cancel does not reach memory": (
        Edit(_SHARD + "written", "window.drop(uuid)", "put is None or window.drop(uuid)"),
    ),
    "a held timer may start": (
        Edit(_SHARD + "start", "if timer.uuid in self._held:", "if False:"),
    ),
    "a key is passed on before its write is durable": (
        Edit(
            _SHARD + "stage",
            "self._stage(write)",
            "self._stage(write)\n"
            "        queue = self._held[write.uuid] or ()\n"
            "        turns = [t for t in queue if isinstance(t, asyncio.Future)]\n"
            "        [t.set_result(None) for t in turns[:1] if not t.done()]",
        ),
    ),
    "an earlier timer does not wake its shard": (
        Edit(_SHARD + "written", "self._host.wake(self, wake_at)", "pass"),
    ),
    "a wake-up that is due sooner is dropped": (
        Edit(
            _NODE + "wake",
            "if shard.wake_at is not None and shard.wake_at <= at:",
            "if shard.wake_at is not None:",
        ),
    ),
    "the window's tail is given up and its end stays": (
        Edit(_WINDOW + "trim", "self.loaded_to = self._page[-1].cursor", "pass"),
    ),
    "a window that empties asks for nothing": (
        Edit(_SHARD + "_refill", "self._host.wake(self, 0)", "pass"),
    ),
    "an old attempt's outcome is written over a new schedule": (
        Edit(
            _SHARD + "conclude",
            "if not self.is_at(attempt):",
            "if self.closed:",
        ),
    ),
    "an outcome that waited for a create is written after it": (
        Edit(_SHARD + "_pass_on", "if self.executing.get(uuid) is attempt:", "if True:"),
    ),
    "a retry is written as a removal and then a put": (
        Edit(
            _SHARD + "conclude",
            "write = Write(uuid, put=put, remove=remove, finished=finished, attempt=attempt)",
            "write = Write(uuid, remove=remove or attempt.timer, finished=finished,"
            " attempt=attempt)\n"
            "    async def later():\n"
            "        await self.hold(uuid)\n"
            "        self._stage(Write(uuid, put=put))\n"
            "    if put is not None:\n"
            "        asyncio.get_running_loop().create_task(later())",
        ),
    ),
    "an outcome is dropped with its failed write": (
        Edit(
            _SHARD + "failed",
            "if write.attempt is not None:",
            "if False:",
        ),
    ),
    "outcomes are written whoever owned the shard meanwhile": (
        Edit(_NODE + "_recover", "lease.version == shard.lease.version + 1:", "True:"),
    ),
    "a restart keeps the generation": (Edit(_SHARD + "restart", "self._generation += 1", "pass"),),
    "a restart keeps the window": (Edit(_SHARD + "restart", "self.window = Window()", "pass"),),
    "timers are fired 50 ms ahead": (
        Edit(_WINDOW + "take_due", "live = self._live", "live = self._live; now += 50"),
        Edit(_SHARD + "start", "if timer.execute_at > now:", "if False:"),
    ),
    "a set back clock loses what was handed out": (
        Edit(_SHARD + "start", "self.window.add(timer)", "self.window.start(timer)"),
    ),
    "one attempt too many": (
        Edit(
            "duetime.firing:next_try",
            "attempt >= policy.max_attempts",
            "attempt > policy.max_attempts",
        ),
    ),
    "a retry does not count": (
        Edit(
            _FIRING + "_conclude",
            "attempts=attempt.number,\n            first",
            "attempts=timer.attempts,\n            first",
        ),
    ),
    "history says completed of what failed": (
        Edit(_FIRING + "_finish", "Finished(timer, status,", 'Finished(timer, "completed",'),
    ),
    "a completed timer leaves no history": (
        Edit(_FIRING + "_finish", "namespace.history_retention_s > 0", "False"),
    ),
    "history is deleted at once": (
        Edit(_NODE + "_purge", "namespace.history_retention_s * 1000", "0"),
    ),
    "parked timers are not served when an answer comes": (
        Edit(
            _FIRING + "answered",
            "elif destination.queue:\n        self._serve(destination, now)",
            "elif False:\n        pass",
        ),
    ),
    "firing does not go on when outcomes are recorded": (
        Edit(_FIRING + "recorded", "if were_too_many:", "if False:"),
    ),
    "more callbacks in flight than allowed": (
        Edit(
            _FIRING + "_has_room",
            "self.in_flight < self._limits.in_flight_max or destination",
            "True or destination",
        ),
        Edit(_FIRING + "_serve_blocked", "and self.in_flight < limits.in_flight_max", ""),
    ),
    "what no longer stands is sent": (
        Edit(_FIRING + "stands", "and attempt.shard.is_at(attempt)", ""),
    ),
    "a clock set back while connecting is not asked": (
        Edit(_FIRING + "stands", "and attempt.timer.execute_at <= clock.now()", ""),
    ),
    "what was not sent is forgotten": (
        Edit(_SHARD + "take_back", "self.window.add(timer)", "pass"),
    ),
    "a deferred timer is forgotten": (
        Edit(
            _SHARD + "defer",
            "self._stage(Write(timer.uuid, put=put))",
            "self.window.drop(timer.uuid)",
        ),
    ),
    "an update keeps the attempts": (
        Edit(_OPERATIONS + "_changed", "attempts=0,", "attempts=old.attempts,"),
    ),
    "an update is decided before its turn": (
        Edit(
            _OPERATIONS + "update",
            "await shard.hold(uuid)\n    generation = shard.generation\n    try:\n"
            "        timer = await self._pending(shard, uuid, key, scope)\n",
            "timer = await self._pending(shard, uuid, key, scope)\n"
            "    await shard.hold(uuid)\n    generation = shard.generation\n    try:\n",
        ),
    ),
    "a cancel looks into the window only": (
        Edit(
            _OPERATIONS + "_pending",
            "timer = await self._timer_in_store(key)",
            "timer = None",
        ),
    ),
    "get believes in its window only": (
        Edit(
            _OPERATIONS + "get",
            "timer = await self._timer_in_store(key)",
            "timer = None",
        ),
    ),
    "a list ends after its first page": (
        Edit(
            "duetime.service:Service.select",
            "more = len(listing.entries) > limit",
            "more = False",
        ),
    ),
    "a lost shard is not claimed again": (
        Edit("duetime.cluster.alone:Alone.upkeep", "if missing and", "if False and"),
    ),
    "a node fires on although it was not heard of": (
        Edit(_FIRING + "_look", "self._clock.monotonic() < self._trusted_until", "True"),
        Edit(_FIRING + "stands", "clock.monotonic() < self._trusted_until\n        and ", ""),
    ),
    "a dead node's shards stay nobody's": (Edit(_COORDINATOR_PLAN, "or owner not in live", ""),),
    "what another has claimed is not given up": (
        Edit(_COORDINATOR_PLAN, "lost.append(shard)", "pass"),
    ),
    "a shard leaves while its callbacks are under way": (
        Edit(_SHARD + "_go", "self.executing or", ""),
    ),
    "a node takes for its own what it gave back": (
        Edit(_NODE + "vacated", "if self.shards.get(shard.number) is shard:", "if False:"),
    ),
    "a wrong clock keeps its shards": (
        Edit("duetime.cluster.skew:Skew.measured", "self.is_fine = False", "pass"),
    ),
    "what is asked twice is done twice": (
        Edit(
            "duetime.cluster.callee:_Memory.add",
            "self._newer.setdefault(ask, []).append(asked)",
            "pass",
        ),
    ),
    "a request finds only the owner it knows of": (
        Edit("duetime.cluster.router:_Search.goes_on", "await self._node.refresh_owners()", "pass"),
        Edit("duetime.cluster.coordinator:Coordinator._look_again", "self._tend_now.set()", "pass"),
    ),
}


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """The engine with this mistake in it."""
    undo: list[tuple[Any, str, Any]] = []
    try:
        for edit in MUTANTS[name]:
            owner, attribute, original = _find(edit.where)
            undo.append((owner, attribute, original))
            setattr(owner, attribute, _edited(original, edit))
        yield
    finally:
        for owner, attribute, original in reversed(undo):
            setattr(owner, attribute, original)


def hunt(name: str, seeds: range) -> Caught | None:
    """The first seed that catches this mutant."""
    with mutated(name):
        for seed in seeds:
            violation = World(seed).run()
            if violation is not None:
                return Caught(violation.checker, violation.message, seed)
    return None


def _find(where: str) -> tuple[Any, str, Any]:
    module, _, path = where.partition(":")
    owner: Any = importlib.import_module(module)
    *outer, attribute = path.split(".")
    for part in outer:
        owner = getattr(owner, part)
    return owner, attribute, getattr(owner, attribute)


def _edited(original: Any, edit: Edit) -> Any:
    source = textwrap.dedent(inspect.getsource(original))
    if source.count(edit.old) != 1:
        raise LookupError(f"{edit.where} has {source.count(edit.old)} times: {edit.old}")
    made: dict[str, Any] = {}
    exec(source.replace(edit.old, edit.new), original.__globals__, made)
    return made[original.__name__]
