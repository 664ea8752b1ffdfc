"""Clients that create, batch, move, replace and cancel timers, and write down all of it.

Each timer has one client, so what was asked of it has an order. An outcome that a broken
connection or a 503 leaves open is looked up as soon as the server answers again.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any, NamedTuple

import aiohttp
from tests.acceptance.processes import instant_passed

from chaos.account import ATTEMPTS_MAX
from chaos.ledger import Kind, Op, Outcome, Record
from chaos.served import FORGETFUL, Served, client, now
from duetime.instants import format_instant

CLIENTS = 16
PAUSE_S = 0.12
BATCH_TIMERS = (5, 40)
AHEAD_MS = (300, 3_500)
REST_AHEAD_MS = (5_200, 7_000)
LOOK_UP_PAUSE_S = 0.1
RETRY = {"maxAttempts": ATTEMPTS_MAX, "initialInterval": "100ms", "maxInterval": "2s"}


class Reply(NamedTuple):
    """A status of 0: it was never sent."""

    status: int
    answer: Any = None
    unsure: bool = False
    """Another place was asked before, and gave no answer: it may have done what was asked."""


@asynccontextmanager
async def load(world: Served) -> AsyncIterator[None]:
    """Clients at work until the block ends; each finishes what it has begun."""
    enough = asyncio.Event()
    async with client() as session, asyncio.TaskGroup() as clients:
        for number in range(CLIENTS):
            one = _Client(world, session, Random(world.chance.random()), number)
            clients.create_task(one.work(enough))
        try:
            yield
        finally:
            enough.set()


class _Client:
    """One after the other: a timer, or a batch of them, through its life."""

    def __init__(
        self, world: Served, session: aiohttp.ClientSession, chance: Random, number: int
    ) -> None:
        self._world = world
        self._session = session
        self._chance = chance
        self._number = number
        self._made = 0
        self._revision = 0

    async def work(self, enough: asyncio.Event) -> None:
        while not enough.is_set():
            await self._world.up.wait()
            kind = self._chance.random()
            if kind < 0.15:
                await self._batch()
            elif kind < 0.25:
                await self._rest_life()
            else:
                await self._life()
            await self._pause()

    async def _pause(self) -> None:
        await asyncio.sleep(self._chance.expovariate(1 / PAUSE_S))

    def _record(self, namespace: str) -> Record:
        self._made += 1
        key = f"{self._number}-{self._made}"
        record = Record(key, namespace, id=key)
        self._world.records.append(record)
        return record

    # -- V1 ---------------------------------------------------------------------------

    async def _life(self) -> None:
        record = self._record(self._chance.choice(("default", "default", "billing", "forgetful")))
        await self._ask(record, "create", *self._create(record))
        while self._chance.random() < 0.5:
            await self._pause()
            kind: Kind = self._chance.choices(("cancel", "update", "create"), (4, 3, 2))[0]
            if kind == "create":
                await self._ask(record, kind, *self._create(record))
            elif kind == "update":
                body, due, script = self._create(record)
                for field in ("id", "retryPolicy"):
                    body.pop(field, None)
                await self._ask(record, kind, body | {"timerId": record.id}, due, script)
            else:
                await self._ask(record, kind, _key(record), 0, "")

    async def _batch(self) -> None:
        timers = [
            self._record(self._chance.choice(("default", "billing", "forgetful")))
            for _ in range(self._chance.randint(*BATCH_TIMERS))
        ]
        bodies = [self._create(record) for record in timers]
        sent = now()
        reply = await self._call("POST", "/timers/batch", {"timers": [b for b, _, _ in bodies]})
        told = (sent, now())
        for index, (record, (body, due, script)) in enumerate(zip(timers, bodies, strict=True)):
            outcome = _outcome(reply)
            if outcome == "done":
                assert reply is not None
                result = reply.answer["results"][index]
                if "timer" not in result:
                    unavailable = result["error"] == "UNAVAILABLE"
                    outcome = "maybe" if unavailable or reply.unsure else "refused"
                    self._world.failed += unavailable
            revision = body["payload"]["revision"]
            again = reply is None or reply.unsure
            await self._note(record, "create", told, outcome, revision, due, script, again=again)

    def _create(self, record: Record) -> tuple[dict[str, Any], int, str]:
        """The body of a create, the instant it names, and how the receiver answers."""
        due = self._world.wall() + self._chance.randint(*AHEAD_MS)
        script = self._script(due)
        body = {
            "namespace": record.namespace,
            "id": record.id,
            "executeAt": format_instant(due),
            "callbackUrl": f"{self._world.receiver.url}/{script}",
            "payload": self._marks(record),
        }
        if record.namespace != "billing":  # It has a policy of its own.
            body["retryPolicy"] = RETRY
        return body, due, script

    def _script(self, due: int) -> str:
        kind = self._chance.choices(("ok", "slow", "fail", "refuse", "again"), (55, 20, 12, 3, 10))
        match kind[0]:
            case "slow":
                return f"slow/{self._chance.randint(20, self._world.slow_ms_max)}"
            case "fail":
                return f"fail/{self._chance.randint(1, 3)}"
            case "again":
                return f"again/{due}"
            case other:
                return other

    def _marks(self, record: Record) -> dict[str, Any]:
        self._revision += 1
        return {"key": record.key, "revision": self._revision}

    async def _ask(
        self, record: Record, kind: Kind, body: dict[str, Any], due: int, script: str
    ) -> None:
        path = {"create": "create", "update": "update", "cancel": "delete"}[kind]
        sent = now()
        reply = await self._call("POST", f"/timers/{path}", body)
        told = (sent, now())
        revision = body["payload"]["revision"] if "payload" in body else 0
        again = reply is None or reply.unsure
        await self._note(record, kind, told, _outcome(reply), revision, due, script, again=again)

    # -- REST -------------------------------------------------------------------------

    async def _rest_life(self) -> None:
        record = self._record("default")
        due = self._world.wall() + self._chance.randint(*REST_AHEAD_MS)
        script = self._chance.choice(("ok", "slow/200"))
        marks = self._marks(record)
        body = {
            "execute_at": format_instant(due),
            "callback_url": f"{self._world.receiver.url}/rest/{script}",
            "callback_payload": marks,
            "retry_policy": {"max_attempts": ATTEMPTS_MAX, "initial_interval": "100ms"},
        }
        sent = now()
        # Sent once more it might make a second timer: the server names them.
        reply = await self._call("POST", "/timers", body, again=False)
        outcome = _outcome(reply)
        if outcome == "done":
            assert reply is not None
            record.id = reply.answer["data"]["id"]
        # An id that was never told cannot be looked up: then nobody can tell.
        op = Op(
            kind="create",
            sent=sent,
            ended=now(),
            outcome=outcome,
            revision=marks["revision"],
            due=due,
            script=script,
        )
        record.ops.append(op)
        if outcome == "done" and self._chance.random() < 0.4:
            await self._pause()
            sent = now()
            reply = await self._call("DELETE", f"/timers/{record.id}")
            await self._note(record, "cancel", (sent, now()), _outcome(reply), 0, 0, "")

    # -- what became of it --------------------------------------------------------------

    async def _note(
        self,
        record: Record,
        kind: Kind,
        told: tuple[int, int],
        outcome: Outcome,
        revision: int,
        due: int,
        script: str,
        *,
        again: bool = False,
    ) -> None:
        op = Op(
            kind=kind,
            sent=told[0],
            ended=told[1],
            outcome=outcome,
            revision=revision,
            due=due,
            script=script,
            again=again,
        )
        record.ops.append(op)
        if outcome == "maybe":
            op.outcome = await self._look_up(record, op)
            op.ended = now()

    async def _look_up(self, record: Record, op: Op) -> Outcome:
        """Whether an operation without an answer took effect, from what the server has now."""
        await instant_passed(op.ended + self._world.look_up_after_ms)
        while True:
            await self._world.up.wait()
            reply = await self._call("POST", "/timers/get", _key(record))
            if reply is not None and reply.status in (200, 404):
                break
            await asyncio.sleep(LOOK_UP_PAUSE_S)
        timer = reply.answer
        if reply.status == 404:
            fired_and_forgotten = record.namespace in FORGETFUL and (
                len(record.ops) > 1 or self._world.wall() >= op.due
            )
            return "maybe" if fired_and_forgotten else "absent"
        if op.kind == "cancel":
            return "done" if timer["status"] == "canceled" else "absent"
        return "done" if timer["payload"]["revision"] == op.revision else "absent"

    async def _call(
        self, method: str, path: str, body: Any = None, *, again: bool = True
    ) -> Reply | None:
        """What came back; None when nothing did.

        What one place does not answer is asked `again` at another; then a refusal may be due
        to what the first one did, and is no answer either.
        """
        unknown = False
        reply: Reply | None = Reply(0)
        for place in self._world.places():
            reply = await self._try(method, place, path, body)
            outcome = _outcome(reply)
            if outcome in ("done", "refused"):
                assert reply is not None
                return None if unknown and outcome == "refused" else reply._replace(unsure=unknown)
            unknown = unknown or outcome == "maybe"
            if unknown and not again:
                break
        self._world.failed += 1
        return None if unknown else reply

    async def _try(self, method: str, place: str, path: str, body: Any) -> Reply | None:
        try:
            async with self._session.request(method, place + path, json=body) as response:
                answer = await response.json() if response.status != 204 else None
                self._judge(path, response, answer)
                return Reply(response.status, answer)
        except aiohttp.ClientConnectorError:
            return Reply(0)
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return None

    def _judge(self, path: str, response: aiohttp.ClientResponse, answer: Any) -> None:
        """The only failure of ours that a client may see is a clear 503 in its surface's shape."""
        if response.status < 500:
            return
        if response.status == 503:
            self._world.refused_503 += 1
        shape = {"error", "message", "details", "timestamp"}
        if path in ("/timers",) or response.method != "POST":
            shape = {"code", "message", "data"}
        if (
            response.status != 503
            or not isinstance(answer, dict)
            or set(answer) != shape
            or "Retry-After" not in response.headers
        ):
            self._world.problems.append(f"{path} answered {response.status}: {answer}")


def _key(record: Record) -> dict[str, Any]:
    return {"namespace": record.namespace, "timerId": record.id}


def _outcome(reply: Reply | None) -> Outcome:
    if reply is None or reply.status >= 500:
        return "maybe"
    if reply.status == 0:
        return "absent"
    return "done" if reply.status < 300 else "refused"
