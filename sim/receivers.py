"""Who is called back: destinations with manners, and the carrier that reaches them.

Each answer is drawn together with what it means, so that checkers need not ask the engine.
"""

from dataclasses import dataclass
from random import Random
from typing import Literal, NamedTuple

from duetime.instants import format_instant
from duetime.model import Timer
from duetime.retry import NOT_SENT, Answer
from duetime.writes import Attempt
from sim.clock import EPOCH_MS, SimClock, true_ms
from sim.facts import Meaning, Sent
from sim.ledger import Ledger
from sim.loop import ProcessLoop, Schedule

Manner = Literal["quick", "slow", "failing", "hanging", "flapping", "moody"]
FLAP_US = 7_000_000


class Reply(NamedTuple):
    answer: Answer
    v1: Meaning
    rest: Meaning


COMPLETED = Meaning("completed")
RETRY = Meaning("failed")
GIVE_UP = Meaning("given up")

OK = Reply(Answer(200, b'{"ok":true}'), COMPLETED, COMPLETED)
NOT_OK = Reply(Answer(200, b'{"ok": false}'), RETRY, COMPLETED)
GARBAGE = Reply(Answer(200, b"<html>"), RETRY, COMPLETED)
CUT_OFF = Reply(Answer(200, b'{"ok":tr', "HTTP 200 cut off"), RETRY, COMPLETED)
NO_CONTENT = Reply(Answer(204), RETRY, COMPLETED)
BROKEN = Reply(Answer(503, b"", "HTTP 503"), RETRY, RETRY)
MOVED = Reply(Answer(302), RETRY, RETRY)
GONE = Reply(Answer(410, b"", "HTTP 410"), GIVE_UP, RETRY)
BUSY = Reply(Answer(429, b"", "HTTP 429"), RETRY, RETRY)
REFUSED = Reply(Answer(0, error="connection refused"), RETRY, RETRY)
TIMED_OUT = Reply(Answer(0, error="timed out"), RETRY, RETRY)
MOODS = (OK, OK, NOT_OK, GARBAGE, CUT_OFF, NO_CONTENT, BROKEN, MOVED, GONE, BUSY, REFUSED)


@dataclass(slots=True)
class Destination:
    """One receiver, by host name. `healed` ones are quick and agree to everything."""

    name: str
    manner: Manner


class Receivers:
    """All destinations of a world."""

    def __init__(self, schedule: Schedule, random: Random, manners: dict[str, float]) -> None:
        self._schedule = schedule
        self._random = random
        self.healed = False
        self.by_name: dict[str, Destination] = {}
        for index in range(random.randint(1, 5)):
            name = f"d{index}"
            manner = random.choices(list(manners), weights=list(manners.values()))[0]
            self.by_name[name] = Destination(name, manner)  # type: ignore[arg-type]

    def url(self) -> str:
        return f"http://{self._random.choice(list(self.by_name))}:80/x"

    def connects_s(self) -> float:
        """How long it takes until the first byte can be sent: most often there is a connection."""
        random = self._random
        if self.healed or random.random() < 0.7:
            return 0.0
        return random.choice((0.002, 0.05, 0.5)) * random.random()

    def answer(self, name: str, timer: Timer) -> tuple[float, Reply]:
        """How long this attempt takes, and what comes of it."""
        random = self._random
        manner = "quick" if self.healed else self.by_name[name].manner
        if manner == "flapping":
            manner = "quick" if self._schedule.now_us // FLAP_US % 2 else "failing"
        if manner == "hanging" and random.random() < 0.8:
            return float(timer.timeout_s), TIMED_OUT
        took_s = 0.001 + 0.02 * random.random() ** 2
        if manner == "slow":
            took_s += 3.0 * random.random()
        if took_s >= timer.timeout_s:
            return float(timer.timeout_s), TIMED_OUT
        if manner == "failing":
            return took_s, random.choice((BROKEN, REFUSED, BUSY))
        if manner == "moody":
            return took_s, self._mood()
        return took_s, OK

    def _mood(self) -> Reply:
        random = self._random
        if random.random() < 0.7:
            return random.choice(MOODS)
        now = true_ms(self._schedule)
        at = now + random.choice((-EPOCH_MS // 2, -1, 0, 1, 500, 5_000, 400_000))
        ok = random.choice((b"true", b"false"))
        body = b'{"ok":%s,"nextExecuteAt":"%s"}' % (ok, format_instant(at).encode())
        return Reply(Answer(200, body), Meaning("rescheduled", at), COMPLETED)


class SimCarrier:
    """What one node sends attempts with. Implements firing's `Carrier`."""

    def __init__(
        self,
        receivers: Receivers,
        *,
        ledger: Ledger,
        loop: ProcessLoop,
        clock: SimClock,
    ) -> None:
        self._receivers = receivers
        self._ledger = ledger
        self._loop = loop
        self._clock = clock
        self._closed = False

    def destination(self, url: str) -> str:
        return url.split("/", 3)[2]

    def send(self, attempt: Attempt) -> None:
        self._ledger.begun(self._loop.name, attempt)
        connects_s = self._receivers.connects_s()
        if connects_s:
            self._loop.call_later(connects_s, self._send, attempt)
        else:
            self._send(attempt)

    def _send(self, attempt: Attempt) -> None:
        if self._closed:
            return
        if not attempt.stands():
            self._ledger.not_sent(attempt)
            attempt.answered(NOT_SENT)
            return
        sent = self._ledger.sent(self._loop.name, attempt)
        name = self.destination(attempt.timer.callback_url).split(":")[0]
        took_s, reply = self._receivers.answer(name, attempt.timer)
        self._loop.call_later(took_s, self._answer, attempt, sent, reply)

    async def close(self) -> None:
        self._closed = True

    def _answer(self, attempt: Attempt, sent: Sent, reply: Reply) -> None:
        if self._closed:
            return
        meaning = reply.v1 if attempt.timer.reply == "v1" else reply.rest
        self._ledger.replied(sent, meaning, self._clock.now())
        attempt.answered(reply.answer)
