"""What clients do: small scenes, unlucky in their timing on purpose.

Times are now, a moment from now, where a window ends, where many others are, and far away;
cancels and changes come just before, while and just after a timer fires; several clients
meet on one key. Every request is told to the ledger, which knows what must come of it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from msgspec import UNSET

from duetime.errors import RequestError, TimerNotFound, Unavailable
from duetime.model import DEFAULT_NAMESPACE, Namespace, Reply, RetryPolicy, View
from duetime.requests import Changes, NewTimer, Selection
from duetime.service import Service
from sim import checkers
from sim.facts import UNTIL_EVER, Op, Policy, TimerFacts, same_schedule
from sim.ledger import Ledger
from sim.loop import ProcessLoop
from sim.process import ConnectionLost, GaveUp, Process
from sim.receivers import Receivers

POLICIES = {
    RetryPolicy(max_attempts=3, initial_interval="50ms"): Policy(3, None, 50, 2.0, 300_000),
    RetryPolicy(
        max_attempts=6, initial_interval="1s", backoff_multiplier=3.0, max_interval="4s"
    ): Policy(6, None, 1_000, 3.0, 4_000),
    RetryPolicy(max_attempts_duration="20s"): Policy(None, 20_000, 1_000, 2.0, 300_000),
    RetryPolicy(max_attempts=1): Policy(1, None, 1_000, 2.0, 300_000),
}
REPLIES: tuple[Reply, ...] = ("v1", "v1", "v1", "rest")
ANSWER_S_MAX = 20.0
LONG_AGO = 1_000


class Workload:
    """Plays scenes against whatever nodes there are."""

    def __init__(
        self,
        loop: ProcessLoop,
        random: Random,
        *,
        ledger: Ledger,
        receivers: Receivers,
        processes: Callable[[], list[Process]],
        impatient: float,
    ) -> None:
        self.must_succeed = False
        self.patient = False
        self.requests = 0
        self._loop = loop
        self._random = random
        self._ledger = ledger
        self._receivers = receivers
        self._processes = processes
        self._impatient = impatient
        self._keys: list[tuple[str, str]] = []
        self._instants: list[int] = []
        self._next_id = 0
        self._scenes = (
            (self._single, 3),
            (self._burst, 2),
            (self._cancel_race, 3),
            (self._update_race, 3),
            (self._replace_race, 2),
            (self._rivals, 2),
            (self._touch, 2),
            (self._churn, 3),
            (self._clear, 1),
            (self._look, 2),
            (self._hammer, 1),
        )

    async def play(self, scenes: int, seconds: float) -> None:
        """So many scenes, begun at random within so many seconds."""
        random = self._random
        plays, weights = zip(*self._scenes, strict=True)
        begun: list[asyncio.Task[None]] = []
        for at in sorted(random.random() * seconds for _ in range(scenes)):
            scene = random.choices(plays, weights=weights)[0]
            begun.append(self._loop.create_task(self._later(at, scene)))
        for task in begun:
            await task

    async def touch_every_shard(self) -> None:
        """A write to each: one that was stolen is noticed, and claimed again."""
        process = self._process()
        assert process is not None
        count = max(space.num_shards for space in self._ledger.namespaces.values())
        untouched = set(range(count))
        for namespace in self._ledger.namespaces:
            for _ in range(20 * count):
                key = self._new_key(namespace)
                shard = self._ledger.facts(*key).shard
                if shard in untouched:
                    untouched.discard(shard)
                    await self.create(process, key, process.clock.now() + 6_000)

    async def _later(self, delay_s: float, scene: Callable[[], Awaitable[None]]) -> None:
        await asyncio.sleep(delay_s)
        await scene()

    # -- scenes -----------------------------------------------------------------------------

    async def _single(self) -> None:
        process = self._process()
        if process is not None:
            key = self._new_key()
            await self.create(process, key, self._when(process, key))
            await self.get(process, key)

    async def _burst(self) -> None:
        """Many at one instant, or within a few milliseconds; some of one key."""
        process = self._process()
        if process is None:
            return
        random = self._random
        key = self._new_key()
        at = self._when(process, key)
        spread = random.choice((0, 0, 3, 50))
        keys = [self._new_key(key[0]) for _ in range(random.randint(3, 30))]
        if random.random() < 0.3:
            keys.append(keys[0])
        url = self._receivers.url() if random.random() < 0.5 else None
        times = [at + random.randint(0, spread) for _ in keys]
        self._instants.append(at)
        await self.create_many(process, keys, times, url)

    async def _cancel_race(self) -> None:
        process = self._process()
        if process is None:
            return
        key = self._key()
        at = self._soon(process)
        await self.create(process, key, at)
        await self._near(process, at)
        await self.cancel(process, key)
        await self.get(process, key)

    async def _update_race(self) -> None:
        process = self._process()
        if process is None:
            return
        key = self._key()
        at = self._soon(process)
        await self.create(process, key, at)
        await self._near(process, at)
        moves = self._random.random() < 0.6
        await self.update(process, key, self._when(process, key) if moves else None)

    async def _replace_race(self) -> None:
        process = self._process()
        if process is None:
            return
        key = self._key()
        at = self._soon(process)
        await self.create(process, key, at)
        await asyncio.sleep(process.clock.until(at) + self._random.random() * 0.05)
        await self.create(process, key, self._when(process, key))

    async def _rivals(self) -> None:
        """Several clients at one key at once, each by whatever node it knows."""
        key = self._key()
        process = self._process()
        if process is None:
            return
        at = self._soon(process)
        await self.create(process, key, at)
        if self._random.random() < 0.5:
            await self._near(process, at)
        await self._together([self._one(key) for _ in range(self._random.randint(2, 4))])

    async def _touch(self) -> None:
        """Changes that leave the time as it is, of many timers at once."""
        process = self._process()
        if process is None or not self._keys:
            return
        keys = self._some_keys(12)
        await self._together([self.update(process, key, None) for key in keys])

    async def _churn(self) -> None:
        for _ in range(self._random.randint(2, 6)):
            await self._one(self._key())

    async def _hammer(self) -> None:
        """Refused changes without a pause, while the timers they name are read and fire."""
        process = self._process()
        if process is None:
            return
        namespace = self._random.choice(list(self._ledger.namespaces))
        keys = [self._new_key(namespace) for _ in range(12)]
        now = process.clock.now()
        times = [now + self._random.randint(1_000, 2_000) for _ in keys]
        await self.create_many(process, keys, times, None)
        await asyncio.sleep(process.clock.until(now + 950))
        for _ in range(30):
            await self._together([self.update(process, key, LONG_AGO) for key in keys[:4]])
            keys.append(keys.pop(0))

    async def _clear(self) -> None:
        process = self._process()
        if process is not None and self._keys:
            await self._together([self.cancel(process, key) for key in self._some_keys(15)])

    async def _look(self) -> None:
        process = self._process()
        if process is None or not self._keys:
            return
        if self._random.random() < 0.4:
            await self.list_all(process, self._random.choice(list(self._ledger.namespaces)))
        else:
            await self._together([self.get(process, key) for key in self._some_keys(6)])

    async def _one(self, key: tuple[str, str]) -> None:
        process = self._process()
        if process is None:
            return
        kind = self._random.randrange(5)
        if kind == 0:
            await self.cancel(process, key)
        elif kind == 1:
            await self.update(process, key, self._when(process, key))
        elif kind == 2:
            await self.update(process, key, None)
        elif kind == 3:
            await self.get(process, key)
        else:
            await self.create(process, key, self._when(process, key))

    async def _together(self, requests: list[Any]) -> None:
        for task in [self._loop.create_task(request) for request in requests]:
            await task

    # -- requests ---------------------------------------------------------------------------

    async def create(self, process: Process, key: tuple[str, str], at: int) -> None:
        op, new = self._new_timer(process, key, at, None)
        await self._request(process, [op], lambda service: service.create(new))

    async def create_many(
        self, process: Process, keys: list[tuple[str, str]], times: list[int], url: str | None
    ) -> None:
        news = [self._new_timer(process, key, at, url) for key, at in zip(keys, times, strict=True)]
        await self._request(
            process,
            [op for op, _ in news],
            lambda service: service.create_many([new for _, new in news]),
        )

    async def update(self, process: Process, key: tuple[str, str], at: int | None) -> None:
        if self._random.random() < 0.15:
            at = LONG_AGO  # Refused, but not before it has looked: meanwhile it holds the key.
        op = self._ledger.asked(process.name, "update", key, at)
        assert op.token is not None
        changes = Changes(execute_at=UNSET if at is None else at, metadata=op.token)
        reply = self._random.choice(REPLIES)
        await self._request(
            process, [op], lambda service: service.update(*key, changes, reply=reply)
        )

    async def cancel(self, process: Process, key: tuple[str, str]) -> None:
        op = self._ledger.asked(process.name, "cancel", key)
        await self._request(process, [op], lambda service: service.cancel(*key))

    async def get(self, process: Process, key: tuple[str, str]) -> None:
        asked_us = self._ledger.schedule.now_us
        facts = self._ledger.facts(*key)

        def ended(outcome: object) -> None:
            if isinstance(outcome, (View, TimerNotFound)):
                self._ledger.read(facts, process.name, asked_us, outcome)

        outcome = await self._send(process, lambda service: service.get(*key), ended)
        self._expect_an_answer(facts, f"get of {key}", outcome, asked_us)

    async def list_all(self, process: Process, namespace: str) -> None:
        """All pages of a list; what stood all the while must be there, once and as it is."""
        ledger = self._ledger
        asked_us = ledger.schedule.now_us
        limit = self._random.choice((7, 200, 200))
        views: list[View] = []
        after = None
        while True:
            selection = Selection(namespace=namespace, after=after, limit=limit)
            outcome = await self._send(
                process,
                lambda service, selection=selection: service.select(selection),  # type: ignore[misc]
                lambda outcome: None,
            )
            self._expect_an_answer(None, f"list of {namespace}", outcome, asked_us)
            if isinstance(outcome, BaseException):
                return
            views.extend(outcome.views)
            after = outcome.next
            if after is None:
                break
        self._check_list(namespace, views, asked_us)

    def _check_list(self, namespace: str, views: list[View], asked_us: int) -> None:
        ledger = self._ledger
        shown: dict[bytes, list[View]] = {}
        for view in views:
            if view.status in ("pending", "executing"):
                shown.setdefault(view.timer.uuid, []).append(view)
        missing: list[TimerFacts] = []
        twice: list[str] = []
        wrong: list[str] = []
        for facts in ledger.timers.values():
            state = facts.states[-1]
            if facts.key[0] != namespace or state.since_us >= asked_us:
                continue
            assert state.ended_us == UNTIL_EVER
            mine = shown.get(facts.uuid, [])
            if state.row is None:
                wrong += [f"{facts}, which has ended" for _ in mine]
            elif not mine:
                missing.append(facts)
            elif len(mine) > 1:
                twice.append(str(facts))
            elif not same_schedule(mine[0].timer, state.row):
                stands = checkers.shown(state.row)
                wrong.append(f"{facts} as {checkers.shown(mine[0].timer)}; it is {stands}")
        ledger.check(checkers.a_list_shows_each_once, namespace, missing, twice, wrong)

    def _new_timer(
        self, process: Process, key: tuple[str, str], at: int, url: str | None
    ) -> tuple[Op, NewTimer]:
        random = self._random
        op = self._ledger.asked(process.name, "create", key, at)
        reply = random.choice(REPLIES)
        return op, NewTimer(
            namespace=key[0],
            id=key[1],
            execute_at=at,
            callback_url=url or self._receivers.url(),
            reply=reply,
            metadata=op.token,
            retry=random.choice((None, None, *POLICIES)),
            timeout_s=random.choice((1, 2, 5, 30)),
        )

    async def _request(
        self, process: Process, ops: list[Op], call: Callable[[Service], Awaitable[Any]]
    ) -> None:
        asked_us = self._ledger.schedule.now_us

        def ended(outcome: Any) -> None:
            answers = outcome if isinstance(outcome, list) else [outcome] * len(ops)
            for op, answer in zip(ops, answers, strict=True):
                self._conclude(op, answer)

        outcome = await self._send(process, call, ended)
        if isinstance(outcome, ConnectionLost):
            for op in ops:
                if op.result is None:
                    op.result, op.error = "unknown", "the node died"
        facts = self._ledger.facts(*ops[0].key)
        for answer in outcome if isinstance(outcome, list) else [outcome]:
            self._expect_an_answer(facts, str(ops[0]), answer, asked_us)

    def _conclude(self, op: Op, answer: Any) -> None:
        if isinstance(answer, View):
            self._ledger.ended(op, "ok", answer)
            self._instants.append(answer.timer.execute_at)
        elif isinstance(answer, RequestError) and not isinstance(answer, Unavailable):
            self._ledger.ended(op, "refused", answer)
        else:
            self._ledger.ended(op, "unknown", answer)

    async def _send(
        self,
        process: Process,
        call: Callable[[Service], Awaitable[Any]],
        ended: Callable[[object], None],
    ) -> Any:
        self.requests += 1
        give_up_s = None
        if not self.patient and self._random.random() < self._impatient:
            give_up_s = self._random.random() * 0.02
        return await process.request(
            call,
            client=self._loop,
            ended=ended,
            timeout_s=ANSWER_S_MAX if self.must_succeed else 60.0,
            give_up_s=give_up_s,
        )

    def _expect_an_answer(
        self, facts: TimerFacts | None, what: str, outcome: object, asked_us: int
    ) -> None:
        if not self.must_succeed or not isinstance(outcome, (Unavailable, GaveUp, ConnectionLost)):
            return
        waited_s = (self._ledger.schedule.now_us - asked_us) / 1e6
        why = str(outcome) or type(outcome).__name__
        if facts is not None:
            why += f"; {self._ledger.why(facts)}"
        self._ledger.check(checkers.requests_are_answered, facts, what, waited_s, why)

    # -- choices ------------------------------------------------------------------------------

    def _process(self) -> Process | None:
        """A node that clients believe in; it may be frozen."""
        serving = [process for process in self._processes() if process.started]
        return self._random.choice(serving) if serving else None

    def _new_key(self, namespace: str | None = None) -> tuple[str, str]:
        if namespace is None:
            namespace = self._random.choice(list(self._ledger.namespaces))
        self._next_id += 1
        # CRC32 is linear: names that only count up would leave some shards out.
        key = (namespace, f"t{self._next_id}{self._random.choice('abcdefghijklmnop')}")
        self._keys.append(key)
        return key

    def _key(self) -> tuple[str, str]:
        """A key that others may be using, or an old one, or a new one."""
        roll = self._random.random()
        if roll < 0.3:
            namespace = self._random.choice(list(self._ledger.namespaces))
            key = (namespace, f"shared{self._random.randrange(3)}")
            if key not in self._keys:
                self._keys.append(key)
            return key
        if roll < 0.6 and self._keys:
            return self._random.choice(self._keys)
        return self._new_key()

    def _some_keys(self, count_max: int) -> list[tuple[str, str]]:
        recent = self._keys[-60:]
        return self._random.sample(recent, min(len(recent), self._random.randint(1, count_max)))

    def _soon(self, process: Process) -> int:
        return process.clock.now() + self._random.choice((2, 10, 50, 300, 1_000, 6_000))

    async def _near(self, process: Process, at: int) -> None:
        """Wait until just before this instant, or just after."""
        delta_s = self._random.choice((-0.02, -0.005, -0.002, -0.001, 0.0, 0.001, 0.005, 0.02))
        await asyncio.sleep(max(0.0, process.clock.until(at) + delta_s))

    def _when(self, process: Process, key: tuple[str, str]) -> int:
        """An unlucky instant, by the clock of the node that is asked."""
        random = self._random
        now = process.clock.now()
        roll = random.random()
        if roll < 0.15:
            return now + random.choice((0, 1, 2, 5))
        if roll < 0.35:
            return now + random.randint(1, 3_000)
        if roll < 0.5 and self._instants:
            return random.choice(self._instants[-8:])
        if roll < 0.65:
            shard = process.node.shards.get(self._ledger.facts(*key).shard)
            if shard is not None:
                return shard.window.loaded_to.execute_at + random.choice((-1, 0, 0, 1, 2))
        if roll < 0.75:
            lookahead_ms = process.node.config.lookahead_s_max * 1000
            return now + lookahead_ms + random.choice((-6_000, -1, 0, 1, 2))
        if roll < 0.95:
            return now + random.randint(3_000, 60_000)
        if roll < 0.97:
            return now - random.choice((1, 1_000))
        return now + random.randint(60_000, 7_200_000)


def namespaces(random: Random) -> list[dict[str, Any]]:
    """What to create beside the default one, as arguments of `create_namespace`."""
    return [
        {
            "name": f"ns{index}",
            "num_shards": random.choice((1, 3, 8)),
            "history_retention_s": random.choice((0, 0, 60, None)),
            "min_delay_s": random.choice((0, 0, 2, None)),
            "retry_policy": random.choice((None, *POLICIES)),
        }
        for index in range(random.randint(1, 2))
    ]


def known_namespaces(all_of_them: list[Namespace]) -> dict[str, Namespace]:
    """By name, the default one first."""
    by_name = {namespace.name: namespace for namespace in all_of_them}
    return {DEFAULT_NAMESPACE: by_name[DEFAULT_NAMESPACE], **by_name}
