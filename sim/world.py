"""A world from its seed: break things, heal them, then demand progress.

It has one node, or several that find each other, share the shards and take over by
themselves. Beside a lone node another one may be started by hand (`_stand_in`), which takes
everything, as an operator by mistake might.
"""

import asyncio
import logging
from random import Random
from typing import Any

from sim import checkers
from sim.clock import SimClock
from sim.facts import TimerFacts
from sim.ledger import Ledger, Violation
from sim.loop import Livelock, ProcessLoop, Schedule
from sim.peers import Network
from sim.pending import pending
from sim.process import Process
from sim.receivers import Receivers
from sim.store import Database
from sim.weather import StoreWeather, Weather, draw
from sim.workload import POLICIES, Workload, known_namespaces, namespaces

MACHINES = "abcde"
SHARED_S_MAX = 60
SETTLE_S = 100.0  # Callbacks that hang, timers that were deferred, backlogs: then all is well.
RECLAIM_S = 5.0
PROVE_S = 60.0
LATE_MS_MAX = 3_000
REST_S = 1


class World:
    """`run` it; then ask for `violation`, `seconds` and the trace."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.schedule = Schedule()
        self.weather = weather = draw(seed)
        self.loop = ProcessLoop(
            self.schedule,
            "world",
            troubled=lambda error, text: self._troubled("world", error, text),
        )
        self.ledger = Ledger(
            self.schedule,
            calm=weather.mood == "calm",
            strict_clocks=not (weather.steps or weather.takeover or weather.nodes > 1),
            unaware_us_max=_unaware_us_max(weather),
        )
        self.ledger.policies = POLICIES
        self.ledger.why = self.why
        self.database = Database(self.schedule, self.loop, StoreWeather(), Random(f"{seed}:store"))
        self.database.weather.partitioned = weather.store.partitioned
        self.database.weather.writes_in_flight_max = weather.store.writes_in_flight_max
        self.database.shared = weather.nodes > 1
        self.database.witness = self.ledger
        self.network = Network(Random(f"{seed}:network"))
        self.receivers = Receivers(self.schedule, Random(f"{seed}:receivers"), weather.receivers)
        self.processes: list[Process] = []
        self.workload = Workload(
            self.loop,
            Random(f"{seed}:workload"),
            ledger=self.ledger,
            receivers=self.receivers,
            processes=lambda: [process for process in self.processes if not process.ended],
            impatient=weather.impatient,
        )
        self._chaos = Random(f"{seed}:chaos")
        self._clocks: dict[str, SimClock] = {}
        self._healed = False
        self._machines = MACHINES[: weather.nodes]
        self._asking: list[asyncio.Task[None]] = []

    @property
    def violation(self) -> Violation | None:
        return self.ledger.violation

    @property
    def seconds(self) -> float:
        return self.schedule.now_us / 1e6

    # -- the course of a world ----------------------------------------------------------------

    def run(self) -> Violation | None:
        """Live through it; what rule was broken, or None."""
        handler = _Log(self)
        log = logging.getLogger("duetime")
        level, propagate = log.level, log.propagate
        log.setLevel(logging.ERROR)
        log.propagate = False
        log.addHandler(handler)
        try:
            self.loop.call_soon(self._begin)
            self.schedule.run()
        except Livelock as error:
            self._troubled("world", error, "livelock")
        finally:
            for process in self.processes:
                process.kill()
            self.loop.kill()
            log.removeHandler(handler)
            log.setLevel(level)
            log.propagate = propagate
        return self.violation

    def _begin(self) -> None:
        self._main = self.loop.create_task(self._live())
        self._main.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self.schedule.stop()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._troubled("world", error, "the world itself")

    async def _live(self) -> None:
        weather = self.weather
        for machine in self._machines:
            self._boot(machine)
        await self._until_shared()
        for arguments in namespaces(Random(f"{self.seed}:namespaces")):
            await self._ask("create_namespace", **arguments)
        await self._until_shared()
        known = await self._ask("namespaces")
        self.ledger.namespaces = known_namespaces(known)
        calm = weather.mood == "calm"
        self._expect(calm)
        self._break()
        for busy_s, idle_s in zip(weather.busy_s, weather.idle_s, strict=True):
            await self.workload.play(weather.plots, busy_s)
            await asyncio.sleep(idle_s)
        await self._heal()
        self._expect(True)
        await self.workload.play(12, PROVE_S)
        await asyncio.sleep(LATE_MS_MAX / 1000)
        await self._prove()

    async def _ask(self, method: str, **arguments: Any) -> Any:
        return await self._serving().request(
            lambda service: getattr(service, method)(**arguments), client=self.loop
        )

    def _expect(self, all_is_well: bool) -> None:
        """From now on, nothing may be late and no request may fail; or again anything may."""
        self.workload.must_succeed = all_is_well
        self.ledger.late_ms_max = LATE_MS_MAX if all_is_well else None
        if all_is_well:
            self.ledger.watch_from_us = self.schedule.now_us

    async def _heal(self) -> None:
        """Everything works again. Of lone nodes one is left to prove it, of a cluster all."""
        self._healed = True
        self.ledger.note("world", "healed")
        self.database.weather.heal()
        self.database.down = False
        self.database.cut.clear()
        self.network.heal()
        self.receivers.healed = True
        self.workload.patient = True
        alive = [process for process in self.processes if not process.ended]
        for process in alive:
            process.loop.resume()
        if self.weather.nodes > 1:
            for clock in self._clocks.values():
                clock.correct()  # One that is wrong would give up its shards for ever.
            for machine in self._machines:
                self._restart(machine)
        else:
            for process in alive[:-1]:
                process.stop(lambda: None) if process.started else process.kill()
            if not alive:
                self._boot("a")
        await asyncio.sleep(SETTLE_S)
        await self._until_shared()
        await self.workload.touch_every_shard()
        await asyncio.sleep(RECLAIM_S)

    async def _prove(self) -> None:
        """What is due has fired, and every reader sees what is so, whomever it asks."""
        processes = [process for process in self.processes if process.serves]
        wall = processes[0].clock.now()
        for facts in list(self.ledger.timers.values()):
            if facts.row is not None:
                late_ms = wall - facts.row.execute_at
                if late_ms > LATE_MS_MAX:
                    self.ledger.check(
                        checkers.due_timers_fire, facts, late_ms, LATE_MS_MAX, self.why(facts)
                    )
        for number, facts in enumerate(list(self.ledger.timers.values())):
            await self.workload.get(processes[number % len(processes)], facts.key)
        for process in processes:
            for namespace in self.ledger.namespaces:
                await self.workload.list_all(process, namespace)
            await self._bounds(process)

    async def _bounds(self, process: Process) -> None:
        """At rest, nothing is left over of what was under way."""
        left = self._left_over(process)
        # A timer may have been answered a moment ago: its outcome lingers, and is then written.
        rest_by_us = self.schedule.now_us + REST_S * 1_000_000
        while any(left.values()) and self.schedule.now_us < rest_by_us:
            await asyncio.sleep(0.01)
            left = self._left_over(process)
        for what, count in left.items():
            self.ledger.check(checkers.memory_stays_bounded, process.name, what, count, 0)

    def _left_over(self, process: Process) -> dict[str, int]:
        firing, shards = process.node.firing, process.node.shards.values()
        return {
            "unrecorded outcomes at rest": firing.unrecorded - firing.in_flight,
            "destinations at rest": max(0, len(firing._destinations) - len(self.receivers.by_name)),
            "keys held at rest": sum(len(shard._held) for shard in shards),
            "rows aside at rest": sum(len(shard._aside) for shard in shards),
        }

    # -- nodes --------------------------------------------------------------------------------

    def _boot(self, machine: str) -> Process:
        weather, chaos = self.weather, self._chaos
        clock = self._clocks.get(machine)
        if clock is None:
            clock = self._clocks[machine] = SimClock(
                self.schedule,
                skew_ms=chaos.randint(-weather.skew_ms_max, weather.skew_ms_max),
                drift_ppm=(chaos.random() * 2 - 1) * weather.drift_ppm_max,
            )
        generation = sum(process.name.startswith(machine) for process in self.processes) + 1
        name = f"{machine}{generation}"
        process = Process(
            name,
            schedule=self.schedule,
            database=self.database,
            network=self.network,
            receivers=self.receivers,
            ledger=self.ledger,
            config=weather.config,
            clock=clock,
            random=Random(f"{self.seed}:{name}"),
            troubled=self._troubled,
        )
        self.processes.append(process)
        process.boot(lambda failed: self._restart_later(machine))
        return process

    def _restart_later(self, machine: str) -> None:
        low, high = self.weather.down_s
        delay_s = 1.0 if self._healed else low + (high - low) * self._chaos.random() ** 2
        self.loop.call_later(delay_s, self._restart, machine)

    def _restart(self, machine: str) -> None:
        if any(not p.ended and p.name.startswith(machine) for p in self.processes):
            return
        lone = self.weather.nodes == 1
        if self._healed and lone and any(not process.ended for process in self.processes):
            return
        self._boot(machine)

    async def _until_shared(self) -> None:
        """All nodes serve, and own all shards between them. That it takes too long shows in
        what is late then."""
        give_up_us = self.schedule.now_us + SHARED_S_MAX * 1_000_000
        while not self._is_shared() and self.schedule.now_us < give_up_us:
            await asyncio.sleep(0.1)

    def _is_shared(self) -> bool:
        serving = [process for process in self.processes if process.serves]
        if len(serving) < self.weather.nodes:
            return False
        in_use = serving[0].node.namespaces.num_shards_max()
        owned = sum(
            not shard.leaving for process in serving for shard in process.node.shards.values()
        )
        return owned == in_use

    def _serving(self) -> Process:
        return next(process for process in self.processes if process.serves)

    # -- what goes wrong --------------------------------------------------------------------------

    def _break(self) -> None:
        """Let the weather in, and appoint when what is to happen."""
        weather, chaos = self.weather, self._chaos
        store = self.database.weather
        for name in ("latency_ms", "slow_read", "slow_write", "slow_ms"):
            setattr(store, name, getattr(weather.store, name))
        for name in ("error_before", "error_after", "late"):
            setattr(store, name, getattr(weather.store, name))
        self.network.lost, self.network.delay_ms = weather.lost, weather.delay_ms
        whole_s = float(sum(weather.busy_s) + sum(weather.idle_s))
        for kind, count in (
            (self._outage, weather.outages),
            (self._theft, weather.thefts),
            (self._kill, weather.kills),
            (self._stop, weather.restarts),
            (self._freeze, weather.freezes),
            (self._step, weather.steps),
            (self._cut, weather.cuts),
            (self._drain, weather.drains),
        ):
            for _ in range(count):
                self.loop.call_later(self._moment(whole_s), kind)
        if weather.takeover and chaos.random() < 0.5:
            self.loop.call_later(self._moment(whole_s), self._stand_in)

    def _moment(self, whole_s: float) -> float:
        """Mostly in a busy time or soon after one: that is when things are under way."""
        chaos = self._chaos
        if chaos.random() < 0.2:
            return chaos.random() * whole_s
        index = chaos.randrange(len(self.weather.busy_s))
        before = sum(self.weather.busy_s[:index]) + sum(self.weather.idle_s[:index])
        return before + chaos.random() * (self.weather.busy_s[index] + 5.0)

    def _alive(self) -> list[Process]:
        return [process for process in self.processes if process.serves]

    def _outage(self) -> None:
        if self._healed or self.database.down:
            return
        low, high = self.weather.outage_s
        self.database.down = True
        self.ledger.note("world", "database down")
        self.loop.call_later(low + (high - low) * self._chaos.random() ** 2, self._outage_over)

    def _outage_over(self) -> None:
        self.database.down = False
        self.ledger.note("world", "database up")

    def _theft(self) -> None:
        if not self._healed:
            count = max(space.num_shards for space in self.ledger.namespaces.values())
            shards = self._chaos.sample(range(count), self._chaos.randint(1, count))
            self.database.steal(shards, "thief")

    def _kill(self) -> None:
        if self._healed or not self._alive():
            return
        process = self._chaos.choice(self._alive())
        process.kill()
        self._restart_later(process.machine)

    def _stop(self) -> None:
        if self._healed or not self._alive():
            return
        process = self._chaos.choice(self._alive())
        process.stop(lambda: self._restart_later(process.machine))

    def _freeze(self) -> None:
        if self._healed or not self._alive():
            return
        chaos = self._chaos
        process = chaos.choice(self._alive())
        low, high = self.weather.freeze_s
        process.loop.freeze()
        self.ledger.note(process.name, "frozen")
        self.loop.call_later(low + (high - low) * chaos.random() ** 2, self._resume, process)
        if self.weather.takeover:
            self._stand_in()

    def _resume(self, process: Process) -> None:
        if process.loop.state == "frozen":
            self.ledger.note(process.name, "resumed")
            process.loop.resume()

    def _drain(self) -> None:
        """Somebody has a node hand its shards over, asking any node; later it takes part again."""
        serving = self._alive()
        if self._healed or not serving:
            return
        chaos = self._chaos
        machine, asked = chaos.choice(self._machines), chaos.choice(serving)
        self._ask_to_drain(asked, machine, undo=False)
        self.loop.call_later(1 + 30 * chaos.random(), self._undrain, machine)

    def _undrain(self, machine: str) -> None:
        # It may have died since, and an order that was lost would keep it away for good.
        for process in self.processes:
            if process.machine == machine and process.serves:
                self._ask_to_drain(process, machine, undo=True)

    def _ask_to_drain(self, asked: Process, machine: str, *, undo: bool) -> None:
        self.ledger.note(asked.name, "asked", "undo drain" if undo else "drain", machine)

        async def ask() -> None:
            await asked.request(
                lambda service: service.drain_node(machine, undo=undo), client=self.loop
            )

        self._asking.append(self.loop.create_task(ask()))

    def _cut(self) -> None:
        """A machine can reach the others no more, or the database, or neither."""
        if self._healed:
            return
        chaos = self._chaos
        machine = chaos.choice(self._machines)
        both = (self.network.cut, self.database.cut)
        from_whom = chaos.choice((both, both[:1], both[1:]))
        for cut in from_whom:
            cut.add(machine)
        names = [
            name for cut, name in zip(both, ("nodes", "database"), strict=True) if cut in from_whom
        ]
        self.ledger.note(machine, "cut off from", *names)
        low, high = self.weather.cut_s
        after_s = low + (high - low) * chaos.random() ** 2
        self.loop.call_later(after_s, self._uncut, machine, from_whom)

    def _uncut(self, machine: str, from_whom: tuple[set[str], ...]) -> None:
        for cut in from_whom:
            cut.discard(machine)
        self.ledger.note(machine, "reachable again")

    def _stand_in(self) -> None:
        """Another node takes every shard, whoever is there; later it goes again."""
        if self._healed or any(not p.ended and p.name[0] == "b" for p in self.processes):
            return
        process = self._boot("b")
        self.loop.call_later(1 + 20 * self._chaos.random(), self._dismiss, process)

    def _dismiss(self, process: Process) -> None:
        if self._healed or process.ended:
            return
        if self._chaos.random() < 0.5 or not process.serves:
            process.kill()
        else:
            process.stop(lambda: None)
        self._restart_later("a")

    def _step(self, patience: int = 200) -> None:
        """When a callback is under way, if that is soon: then it matters."""
        if self._healed:
            return
        chaos = self._chaos
        if patience and not any(process.node.firing.in_flight for process in self._alive()):
            self.loop.call_later(0.02, self._step, patience - 1)
            return
        machine = chaos.choice(list(self._clocks))
        ms = chaos.randint(*self.weather.step_ms) * chaos.choice((-1, 1))
        self._clocks[machine].step(ms)
        self.ledger.note(machine, "clock set by", ms)

    # -- what is heard of it -----------------------------------------------------------------------

    def why(self, facts: TimerFacts) -> str:
        return pending(facts, self.processes, self.database)

    def _troubled(self, process: str, error: BaseException | None, message: str) -> None:
        text = f"{type(error).__name__}: {error}" if error is not None else "no exception"
        if error is not None and error.__traceback__ is not None:
            frame = error.__traceback__
            while frame.tb_next is not None:
                frame = frame.tb_next
            code = frame.tb_frame.f_code
            text += f" ({code.co_name}, line {frame.tb_lineno} of {code.co_filename[-30:]})"
        self.ledger.check(checkers.the_engine_raises_nothing, process, message, text)


def _unaware_us_max(weather: Weather) -> int | None:
    """How long a node may fire under a lease that was superseded; None: nobody tells it."""
    if weather.nodes == 1:
        return None
    if weather.thefts:
        return 70_000_000  # The thief tells nobody: it is found when owners are checked.
    return 8_000_000


class _Log(logging.Handler):
    """The engine's log: exceptions that it caught, and what the safety read found."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        world = self._world
        loop: Any = asyncio._get_running_loop()
        name = getattr(loop, "name", "?")
        if record.exc_info and record.exc_info[1] is not None:
            world._troubled(name, record.exc_info[1], record.getMessage())
        elif record.getMessage() == "overdue timer was overlooked":
            facts = world.ledger.facts(record.__dict__["namespace"], record.__dict__["id"])
            shard = world.ledger.processes[name].node.shards[facts.shard]
            if world.ledger.owns(shard.lease):
                world.ledger.check(checkers.memory_overlooks_nothing, facts, name)
