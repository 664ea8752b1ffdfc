"""What the documents promise of callbacks, asked of a real server with a real receiver."""

import asyncio
import json
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from duetime import __version__
from duetime.instants import parse_instant
from duetime.testing.receiver import Receiver, Request, Response
from tests.acceptance.processes import Duetime, instant_in, serving

RETRY = {"maxAttempts": 2, "initialInterval": "50ms"}
OK = b'{"ok":true}'


class Script:
    """Answers each path with its own list of answers; the last one is repeated."""

    def __init__(self) -> None:
        self.answers: dict[str, list[Response]] = {}
        self.gate = asyncio.Event()

    async def __call__(self, request: Request) -> Response:
        path = request.path.partition("?")[0]
        if path == "/held":
            await self.gate.wait()
        answers = self.answers.get(path, [Response()])
        return answers.pop(0) if len(answers) > 1 else answers[0]


class World:
    """A server whose namespace `quick` has no least delay, and a receiver that has a script."""

    def __init__(self, duetime: Duetime, receiver: Receiver, script: Script) -> None:
        self.duetime = duetime
        self.receiver = receiver
        self.script = script

    async def create(self, id: str, *answers: Response, **fields: Any) -> None:
        """A timer that is due soon, its callback answered so."""
        self.script.answers[f"/{id}"] = list(answers) or [Response()]
        await self.duetime.v1(
            "timers/create",
            **{
                "namespace": "quick",
                "id": id,
                "executeAt": instant_in(0.5),
                "callbackUrl": f"{self.receiver.url}/{id}?token=hush",
            }
            | fields,
        )

    async def get(self, id: str) -> Any:
        return await self.duetime.v1("timers/get", namespace="quick", timerId=id)

    async def ended(self, id: str) -> Any:
        """The timer once its status is final."""
        async with asyncio.timeout(20):
            while (timer := await self.get(id))["status"] in ("pending", "executing"):
                pass
        return timer

    async def rest_ended(self, id: str) -> Any:
        """The same for one of REST."""
        async with asyncio.timeout(20):
            while True:
                _, told = await self.duetime.call("GET", f"/timers/{id}")
                if told["data"]["status"] not in ("pending", "executing"):
                    return told["data"]

    async def called(self, id: str, times: int) -> list[Request]:
        """The callbacks of the timer, once there are so many."""
        await self.receiver.until(lambda: len(self.calls(id)) >= times)
        return self.calls(id)

    def calls(self, id: str) -> list[Request]:
        return [one for one in self.receiver.requests if one.path.split("?")[0] == f"/{id}"]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    script = Script()
    async with Receiver(script) as receiver, serving(tmp_path) as duetime:
        await duetime.namespace("quick", numShards=4, minDelaySeconds=0)
        yield World(duetime, receiver, script)


async def test_v1_reads_each_answer_as_the_table_says(world: World) -> None:
    repeated = {
        **{f"status-{status}": Response(status, OK) for status in (201, 204, 299, 301, 304)},
        **{f"status-{status}": Response(status, OK) for status in (408, 429, 500, 503, 599)},
        "not-ok": Response(200, b'{"ok":false}'),
        "empty": Response(200, b""),
        "text": Response(200, b"OK"),
        "no-ok": Response(200, b"{}"),
        "ok-in-quotes": Response(200, b'{"ok":"true"}'),
        "no-instant": Response(200, b'{"ok":false,"nextExecuteAt":"soon"}'),
        "no-zone": Response(200, b'{"ok":true,"nextExecuteAt":"2099-01-01T00:00:00"}'),
    }
    final = {
        f"status-{status}": Response(status, OK) for status in (400, 401, 404, 409, 410, 422, 499)
    }
    completing = {"ok": Response(), "more": Response(200, b' {"ok" : true, "more": 1}')}
    for name, answer in (repeated | final | completing).items():
        await world.create(name, answer, retryPolicy=RETRY)
    await world.create("no-policy", Response(503))
    for ids, status, attempts in (
        (repeated, "failed", 2),
        (final, "failed", 1),
        (completing, "completed", 1),
        (["no-policy"], "failed", 1),
    ):
        for name in ids:
            timer = await world.ended(name)
            assert (name, timer["status"], timer["attempts"]) == (name, status, attempts)
            assert len(world.calls(name)) == attempts
            assert timer["executedAt"] is not None
            error = timer["lastError"]
            assert (error is None) == (status == "completed")
            if name.startswith("status-"):
                assert error.startswith(f"HTTP {name.removeprefix('status-')}")
            assert "hush" not in str(error)


async def test_v1_says_in_body_and_headers_which_timer_it_is(world: World) -> None:
    headers = {"X-Order": "17"}
    await world.create("told", Response(503), Response(), payload={"n": 1.0}, retryPolicy=RETRY)
    await world.create("own", payload=None, callbackHeaders=headers)
    first, second = await world.called("told", 2)
    at = (await world.ended("told"))["createdAt"]
    for number, call in ((1, first), (2, second)):
        body = json.loads(call.body)
        assert (call.method, list(body)) == (
            "POST",
            ["namespace", "timerId", "executeAt", "attempt", "payload"],
        )
        assert (body["namespace"], body["timerId"]) == ("quick", "told")
        assert (body["attempt"], body["payload"]) == (number, {"n": 1.0})
        assert body["executeAt"] > at
        assert parse_instant(body["executeAt"]) <= call.at
        assert call.headers["content-type"] == "application/json"
        assert call.headers["user-agent"] == f"duetime/{__version__}"
        assert call.headers["x-timer-id"] == "told"
        assert call.headers["x-timer-namespace"] == "quick"
        assert call.headers["x-timer-attempt"] == str(number)
        assert call.headers["x-timer-scheduled-at"] == body["executeAt"]
    (own,) = await world.called("own", 1)
    assert own.headers["x-order"] == "17"
    assert json.loads(own.body)["payload"] is None


async def test_a_callback_makes_its_timer_recur_with_its_attempts_anew(world: World) -> None:
    far = b'{"ok":true,"nextExecuteAt":"2099-01-01T00:00:00.0001+01:00"}'
    await world.create("far", Response(503), Response(200, far), retryPolicy=RETRY)
    past = Response(200, b'{"ok":false,"nextExecuteAt":"1999-01-01T00:00:00Z"}')
    failing = Response(200, b'{"ok":false}')
    await world.create("past", failing, past, failing, Response(), retryPolicy=RETRY)
    await world.called("far", 2)
    async with asyncio.timeout(20):
        while (timer := await world.get("far"))["executeAt"] != "2098-12-31T23:00:00.001Z":
            pass
    assert (timer["status"], timer["attempts"], timer["lastError"]) == ("pending", 0, None)
    assert (await world.ended("past"))["attempts"] == 2
    numbers = [call.headers["x-timer-attempt"] for call in world.calls("past")]
    assert numbers == ["1", "2", "1", "2"]


async def test_retries_keep_their_distance_and_end_where_the_policy_says(world: World) -> None:
    growing = {"maxRetries": 3, "initialInterval": "100ms", "backoffMultiplier": 4}
    await world.create("grow", Response(500), retryPolicy={**growing, "maxInterval": "200ms"})
    lasting = {"initialInterval": "150ms", "backoffMultiplier": 1, "maxAttemptsDuration": "400ms"}
    await world.create("last", Response(500), retryPolicy=lasting)
    assert (await world.ended("grow"))["attempts"] == 4
    times = [call.at for call in world.calls("grow")]
    waits = [later - earlier for earlier, later in pairwise(times)]
    # Never sooner than the shortest wait; an attempt itself takes time, and more on a busy machine.
    assert all(wait >= least for wait, least in zip(waits, (80, 160, 160), strict=True))
    ended = await world.ended("last")
    assert 2 <= ended["attempts"] <= 4
    times = [call.at for call in world.calls("last")]
    assert ended["status"] == "failed"
    assert len(times) == ended["attempts"]


async def test_while_it_executes_only_a_create_gets_through(world: World) -> None:
    await world.create("held", Response())
    await world.called("held", 1)
    key = {"namespace": "quick", "timerId": "held"}
    assert (await world.get("held"))["status"] == "executing"
    for operation in ("update", "delete"):
        status, told = await world.duetime.call("POST", f"/api/v1/timers/{operation}", key)
        assert (status, told["error"]) == (409, "TIMER_EXECUTING")
    for wanted, ids in (("executing", ["held"]), ("pending", [])):
        page = await world.duetime.v1("timers/list", namespace="quick", status=wanted)
        assert [timer["id"] for timer in page["timers"]] == ids
    await world.create("held", executeAt="2099-01-01T00:00:00Z")
    new = await world.get("held")
    world.script.gate.set()
    await world.create("other")
    await world.ended("other")  # By then the held answer was taken in as well.
    assert await world.get("held") == new
    assert (new["status"], new["executeAt"]) == ("pending", "2099-01-01T00:00:00.000Z")


async def test_a_namespace_without_history_forgets_and_its_policy_serves(world: World) -> None:
    await world.duetime.namespace(
        "brief",
        numShards=1,
        minDelaySeconds=0,
        historyRetentionSeconds=0,
        retryPolicy=RETRY,
    )
    await world.create("gone", Response(503), namespace="brief")
    await world.called("gone", 2)
    key = {"namespace": "brief", "timerId": "gone"}
    async with asyncio.timeout(20):
        while (await world.duetime.call("POST", "/timers/get", key))[0] != 404:
            pass
    assert len(world.calls("gone")) == 2


async def test_attempts_are_counted_on_after_a_kill(tmp_path: Path) -> None:
    script = Script()
    script.answers["/x"] = [Response(503), Response()]
    policy = {"maxAttempts": 2, "initialInterval": "2s"}
    async with Receiver(script) as receiver:
        async with serving(tmp_path) as duetime:
            await duetime.v1(
                "timers/create",
                id="x",
                executeAt=instant_in(1),
                callbackUrl=f"{receiver.url}/x",
                retryPolicy=policy,
            )
            await receiver.until(lambda: len(receiver.requests) == 1)
            timer = await duetime.until_status("x", "pending")
            assert timer["attempts"] == 1
            assert timer["lastError"].startswith("HTTP 503 from ")
            await duetime.kill()
        async with serving(tmp_path) as again:
            timer = await again.until_status("x", "completed")
        assert (timer["attempts"], timer["lastError"]) == (2, None)
        numbers = [call.headers["x-timer-attempt"] for call in receiver.requests]
        assert numbers == ["1", "2"]


@pytest.mark.slow
async def test_rest_completes_with_any_2xx_and_repeats_only_by_policy(world: World) -> None:
    policy = {"max_attempts": 2, "initial_interval": "50ms"}
    expected = {}
    for answer in (200, 201, 204, 299, 302, 400, 404, 429, 500):
        for retry in (None, policy):
            name = f"{answer}-{'retry' if retry else 'once'}"
            world.script.answers[f"/{name}"] = [Response(answer, b"")]
            code, told = await world.duetime.call(
                "POST",
                "/timers",
                {
                    "execute_at": instant_in(6),
                    "callback_url": f"{world.receiver.url}/{name}",
                    "callback_method": "PUT",
                    "callback_payload": ["as", {"it": 1.0}],
                    "retry_policy": retry,
                },
            )
            assert code == 201
            done = answer < 300
            calls = 1 if done or retry is None else 2
            expected[told["data"]["id"]] = (name, "completed" if done else "failed", calls)
    for id_, (name, status, calls) in expected.items():
        await world.called(name, calls)
        timer = await world.rest_ended(id_)
        assert (name, timer["status"]) == (name, status)
        assert (timer["last_error"] is None) == (status == "completed")
        assert timer["executed_at"] is not None
        sent = world.calls(name)
        assert len(sent) == calls
        assert {(call.method, call.body) for call in sent} == {("PUT", b'["as", {"it": 1.0}]')}
        assert sent[0].headers["x-timer-id"] == id_
        assert sent[0].headers["x-timer-namespace"] == "default"
