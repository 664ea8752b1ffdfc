"""What a timer's callback looks like on the wire."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace

from duetime import __version__
from duetime.delivery.guard import AddressGuard
from duetime.delivery.http import HttpCarrier
from duetime.model import Method, Timer
from duetime.retry import NOT_SENT, Answer, Failed, verdict
from duetime.routing import timer_uuid
from duetime.writes import Attempt
from tests.delivery.conftest import LOOPBACK
from tests.delivery.peers import OK, Connection, Peer, Request, answering, serving

AT = 1_769_851_800_123  # 2026-01-31T09:30:00.123Z
REST = Timer(
    namespace="default",
    id="8d1f",
    uuid=timer_uuid("default", "8d1f"),
    shard=3,
    execute_at=AT + 60_000,
    callback_url="http://127.0.0.1:1/hook?a=b",
    created_at=AT - 1_000,
    updated_at=AT - 1_000,
    scheduled_at=AT,
    timeout_s=5,
    reply="rest",
    payload=b'{"a" : 1.0}',
)
V1 = replace(REST, namespace="orders", id="order-1", reply="v1")


class Heard:
    """Hears what came of attempts."""

    def __init__(self) -> None:
        self.answers: asyncio.Queue[Answer] = asyncio.Queue()
        self.stand = True

    def stands(self, _attempt: Attempt) -> bool:
        return self.stand

    def answered(self, _attempt: Attempt, answer: Answer) -> None:
        self.answers.put_nowait(answer)


class Sending:
    """A carrier, and a server that notes what it is sent."""

    def __init__(self, carrier: HttpCarrier, seen: list[Request], peer: Peer) -> None:
        self.carrier = carrier
        self.heard = Heard()
        self.seen = seen
        self.peer = peer

    def begin(self, timer: Timer, **changes: Any) -> Attempt:
        timer = replace(timer, **({"callback_url": self.peer.url("/hook?a=b")} | changes))
        shard: Any = None
        attempt = Attempt(timer, timer.attempts + 1, shard, None, self.heard, 0)
        self.carrier.send(attempt)
        return attempt

    async def answer(self, timer: Timer, **changes: Any) -> Answer:
        self.begin(timer, **changes)
        async with asyncio.timeout(10):
            return await self.heard.answers.get()

    async def sent(self, timer: Timer, **changes: Any) -> Request:
        assert await self.answer(timer, **changes) == Answer(200, b"ok")
        return self.seen[-1]


def new_carrier(guard: AddressGuard | None = None) -> HttpCarrier:
    return HttpCarrier(
        guard=guard or AddressGuard(LOOPBACK, False),
        tls_verify=True,
        ca_file=None,
        response_bytes_max=1_000,
    )


@pytest.fixture
async def sending() -> AsyncIterator[Sending]:
    seen: list[Request] = []

    async def script(connection: Connection) -> None:
        while True:
            seen.append(await connection.request())
            await connection.send(OK)

    async with serving(script) as peer:
        carrier = new_carrier()
        yield Sending(carrier, seen, peer)
        await carrier.close()


async def test_a_rest_callback_is_the_payload_as_it_was_received(sending: Sending) -> None:
    request = await sending.sent(REST)
    assert (request.method, request.path) == ("POST", "/hook?a=b")
    assert request.body == b'{"a" : 1.0}'
    assert request.headers == [
        ("Host", sending.carrier.destination(sending.peer.url()).removeprefix("http://")),
        ("User-Agent", f"duetime/{__version__}"),
        ("X-Timer-Namespace", "default"),
        ("Content-Type", "application/json"),
        ("X-Timer-Id", "8d1f"),
        ("X-Timer-Attempt", "1"),
        ("X-Timer-Scheduled-At", "2026-01-31T09:30:00.123Z"),
        ("Content-Length", "11"),
    ]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
async def test_a_rest_callback_uses_the_method_asked_for(sending: Sending, method: Method) -> None:
    assert (await sending.sent(REST, method=method)).method == method


async def test_a_rest_callback_without_a_payload_has_an_empty_body(sending: Sending) -> None:
    request = await sending.sent(REST, payload=None)
    assert request.body == b""
    assert ("Content-Length", "0") in request.headers
    assert ("Content-Type", "application/json") in request.headers


async def test_a_v1_callback_says_which_timer_it_is(sending: Sending) -> None:
    request = await sending.sent(V1, attempts=2)
    assert request.method == "POST"
    assert json.loads(request.body) == {
        "namespace": "orders",
        "timerId": "order-1",
        "executeAt": "2026-01-31T09:30:00.123Z",
        "attempt": 3,
        "payload": {"a": 1.0},
    }
    assert b'"payload":{"a" : 1.0}' in request.body
    assert ("X-Timer-Attempt", "3") in request.headers


async def test_a_v1_timer_whose_method_rest_changed_is_sent_as_it_is_shown(
    sending: Sending,
) -> None:
    assert (await sending.sent(V1, method="PATCH")).method == "PATCH"


async def test_a_v1_callback_without_a_payload_says_null(sending: Sending) -> None:
    assert json.loads((await sending.sent(V1, payload=None)).body)["payload"] is None


async def test_ids_of_any_characters_travel_in_header_and_body(sending: Sending) -> None:
    odd = ' ⏰ 100% \r\nX-Evil: 1"\\'
    request = await sending.sent(V1, id=odd, namespace="grüße")
    assert ("X-Timer-Id", '%20%E2%8F%B0 100%25 %0D%0AX-Evil: 1"\\') in request.headers
    assert ("X-Timer-Namespace", "gr%C3%BC%C3%9Fe") in request.headers
    assert "X-Evil" not in dict(request.headers)
    assert json.loads(request.body)["timerId"] == odd
    assert json.loads(request.body)["namespace"] == "grüße"


async def test_custom_headers_are_sent_beside_duetimes_own(sending: Sending) -> None:
    headers = {"Authorization": "Bearer t", "X-Empty": ""}
    sent = (await sending.sent(REST, headers=headers)).headers
    assert ("Authorization", "Bearer t") in sent
    assert ("X-Empty", "") in sent
    assert ("Content-Type", "application/json") in sent
    assert len({name.lower() for name, _ in sent}) == len(sent)


async def test_a_content_type_of_the_users_takes_the_place_of_ours(sending: Sending) -> None:
    sent = (await sending.sent(REST, headers={"content-type": "application/x+json"})).headers
    kinds = [value for name, value in sent if name.lower() == "content-type"]
    assert kinds == ["application/x+json"]


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"callback_url": "gopher://h/"}, "must be an http or https URL"),
        ({"headers": {"Host": "x"}}, "callback_headers/Host must not be set"),
        ({"headers": {"X": "a\r\nContent-Length: 0"}}, "callback_headers/X must be visible ASCII"),
    ],
)
async def test_what_the_rules_forbid_by_now_is_not_sent_but_answered(
    sending: Sending, changes: dict[str, Any], cause: str
) -> None:
    sending.begin(REST, **changes)
    assert sending.heard.answers.empty()
    answer = await sending.heard.answers.get()
    assert answer.status == 0
    assert answer.error is not None
    assert answer.error.startswith(f"the callback cannot be sent: {cause}")
    assert sending.carrier.destination("gopher://h/") == "gopher://h/"


async def test_the_timers_own_timeout_counts() -> None:
    async def script(connection: Connection) -> None:
        await connection.until_closed()

    async with serving(script) as peer:
        carrier = new_carrier()
        answer = await Sending(carrier, [], peer).answer(REST, timeout_s=1)
        assert answer == Answer(0, b"", "timed out after 1 s")
        await carrier.close()


async def answer_to(timer: Timer, raw: bytes) -> Answer:
    async with serving(answering(raw)) as peer:
        carrier = new_carrier()
        answer = await Sending(carrier, [], peer).answer(timer)
        await carrier.close()
        return answer


async def test_a_redirect_is_an_answer_like_any_other() -> None:
    answer = await answer_to(REST, b"HTTP/1.1 302 F\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n")
    meaning = verdict("rest", answer)
    assert isinstance(meaning, Failed)
    assert meaning.error.startswith("HTTP 302 from http://127.0.0.1:")
    assert meaning.error.endswith("/hook")


async def test_too_long_a_body_fails_only_where_it_has_to_be_read() -> None:
    raw = b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n".ljust(1_100, b" ")
    answer = await answer_to(V1, raw)
    assert verdict("v1", answer) == Failed("response body above 1000 bytes", True)
    assert not isinstance(verdict("rest", answer), Failed)


async def test_closing_drops_attempts_that_were_refused() -> None:
    async with serving(answering()) as peer:
        carrier = new_carrier()
        sending = Sending(carrier, [], peer)
        sending.begin(REST, callback_url="gopher://h/")
        await carrier.close()
        sending.begin(REST)
        await asyncio.sleep(0)
        assert sending.heard.answers.empty()


@pytest.mark.parametrize("body", [b"", b'{"a" : 1.0}', b"x" * 100_000])
async def test_a_receiver_sees_the_same_request_as_aiohttp_would_send(
    sending: Sending, body: bytes
) -> None:
    ours = await sending.sent(REST, payload=body, headers={"Authorization": "Bearer t"})
    own = {name: value for name, value in ours.headers if name not in ("Host", "Content-Length")}
    async with aiohttp.ClientSession(skip_auto_headers=("Accept", "Accept-Encoding")) as session:
        url = sending.peer.url("/hook?a=b")
        async with session.post(url, data=body, headers=own) as response:
            assert response.status == 200
    theirs = sending.seen[-1]
    assert (ours.method, ours.path, ours.body) == (theirs.method, theirs.path, theirs.body)
    both = [
        {name.lower(): value for name, value in request.headers if name.lower() not in hop}
        for request in (ours, theirs)
        for hop in [("accept", "accept-encoding", "connection")]
    ]
    assert both[0] == both[1]


async def test_an_attempt_that_stands_no_more_is_not_sent(sending: Sending) -> None:
    sending.heard.stand = False
    assert await sending.answer(V1) is NOT_SENT
    assert sending.seen == []
