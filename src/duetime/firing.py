"""Due timers under their bounds: how many callbacks run at once, and whose turn it is.

A destination is what a carrier says shares one bound: for HTTP, an origin. Due timers of a
destination that is full wait in its queue, and cost the others nothing. Three bounds:

- in flight for each destination, and for the node. When the node is full, destinations take
  turns, and each may still have a few: one that hangs never shuts out another.
- unrecorded: answered, outcome not yet durable. When the store falls behind, firing waits
  for it, because each of these would fire again after a crash.
- parked: what a destination's queue may hold, which is what it works off in five seconds at
  its present rate, and never less than a floor. What is beyond is moved in the store to when
  its turn would come, so that timers of other destinations behind it come into the windows.

And one in time: nothing starts once this node's trust in its shards has run out, and nothing
that was started is sent. What the process does first after it was frozen may be anything, so
every way in asks the clock, and so does the carrier when it has a connection.
"""

import logging
from collections import deque
from collections.abc import Callable
from math import inf
from typing import Protocol

from msgspec.structs import replace

from duetime.clock import Clock
from duetime.model import FinalStatus, Finished, Namespace, Timer
from duetime.retry import (
    COMPLETED,
    NOT_SENT,
    Answer,
    Completed,
    Failed,
    Rescheduled,
    next_try,
    verdict,
)
from duetime.shard import Shard
from duetime.writes import Attempt

log = logging.getLogger(__name__)

IN_FLIGHT_FLOOR = 2  # What a destination may have under way even when the node is full.
REVIEW_MS = 1_000
PARKED_S = 5
DEFER_MS_MIN = 1_000
DEFER_MS_MAX = 60_000


class Carrier(Protocol):
    """What makes one attempt. It does not touch the store and keeps no schedule."""

    def destination(self, url: str) -> str:
        """Whom the url reaches: what shares one bound on callbacks in flight. Cheap."""

    def send(self, attempt: Attempt) -> None:
        """Begin the attempt; returns at once, never raises.

        `attempt.answered` is called once, never from within `send`, and not after `close`:
        with `NOT_SENT` if `attempt.stands` said no before anything had left.
        """

    async def close(self) -> None:
        """Drop everything in flight without an answer, within 100 ms."""


class FiringLimits(Protocol):
    """The settings that firing reads; `Config` has them."""

    @property
    def in_flight_max(self) -> int: ...
    @property
    def in_flight_per_destination_max(self) -> int: ...
    @property
    def parked_per_destination_max(self) -> int: ...
    @property
    def unrecorded_max(self) -> int: ...


class Destination:
    """One receiver's queue and counts."""

    __slots__ = (
        "answered",
        "in_flight",
        "moved",
        "name",
        "parked_max",
        "queue",
        "rate",
        "reviewed_at",
    )

    def __init__(self, name: str, now: int) -> None:
        self.name = name
        self.queue: deque[tuple[Shard, Timer]] = deque()
        self.in_flight = 0
        self.answered = 0  # Since the last review.
        self.moved = 0  # Since then, to a later time.
        self.rate = 0.0  # Answers a second, as of then.
        self.reviewed_at = now
        self.parked_max: int | None = None  # None while it keeps up.


class Firing:
    """Starts attempts as room allows and turns their answers into outcomes."""

    def __init__(
        self,
        carrier: Carrier,
        *,
        limits: FiringLimits,
        namespace: Callable[[str], Namespace | None],
        clock: Clock,
        chance: Callable[[], float],
    ) -> None:
        self.in_flight = 0
        self.unrecorded = 0
        self._carrier = carrier
        self._limits = limits
        self._namespace = namespace
        self._clock = clock
        self._chance = chance
        self._destinations: dict[str, Destination] = {}
        self._blocked: dict[Destination, None] = {}  # Have timers and own room; the node had none.
        self._stopped = False
        self._trusted_until = inf
        self._trusted = True  # As of the last look at the clock.
        self._tells = log.isEnabledFor(logging.DEBUG)  # Asking each time costs more than that.

    # -- in ---------------------------------------------------------------------------

    def offer(self, shard: Shard, due: list[Timer]) -> None:
        """These are due, in this order: start them, or queue them where there is no room."""
        if self._stopped:
            return
        destinations, destination_of = self._destinations, self._carrier.destination
        in_flight_max = self._limits.in_flight_per_destination_max
        now = self._look()
        for timer in due:
            name = destination_of(timer.callback_url)
            destination = destinations.get(name)
            if destination is None:
                destination = destinations[name] = Destination(name, now)
            if (
                destination.in_flight < in_flight_max
                and not destination.queue
                and self._has_room(destination)
            ):
                self._start(shard, timer, destination, now)
            else:
                self._park(shard, timer, destination)

    def _park(self, shard: Shard, timer: Timer, destination: Destination) -> None:
        parked_max = destination.parked_max
        if (
            parked_max is not None
            and len(destination.queue) >= parked_max
            and self._defer(shard, timer, destination)
        ):
            return
        if not destination.queue and destination.in_flight < (
            self._limits.in_flight_per_destination_max
        ):
            self._blocked[destination] = None
        destination.queue.append((shard, timer))

    def _has_room(self, destination: Destination) -> bool:
        return (self._trusted and self.unrecorded < self._limits.unrecorded_max) and (
            self.in_flight < self._limits.in_flight_max or destination.in_flight < IN_FLIGHT_FLOOR
        )

    def _start(self, shard: Shard, timer: Timer, destination: Destination, now: int) -> None:
        attempt = shard.start(timer, destination, self, now)
        if attempt is None:
            return
        destination.in_flight += 1
        self.in_flight += 1
        if self._tells:
            self._say("timer fired", attempt.timer, attempt=attempt.number)
        self._carrier.send(attempt)

    # -- out --------------------------------------------------------------------------

    def stands(self, attempt: Attempt) -> bool:
        """Whether this attempt may still be sent. The wall clock may have been set back, too."""
        clock = self._clock
        return (
            clock.monotonic() < self._trusted_until
            and attempt.timer.execute_at <= clock.now()
            and attempt.shard.is_at(attempt)
        )

    def answered(self, attempt: Attempt, answer: Answer) -> None:
        """An attempt has ended: decide what it means, have it recorded, start what waits."""
        destination = attempt.destination
        assert isinstance(destination, Destination)
        now = self._look()
        destination.in_flight -= 1
        destination.answered += 1
        self.in_flight -= 1
        if answer is NOT_SENT:
            attempt.shard.take_back(attempt)
        elif self._conclude(attempt, answer, now):
            self.unrecorded += 1
        if self._blocked:
            if destination.queue:
                self._blocked[destination] = None
                self._serve_floor(destination, now)
            self._serve_blocked(now)
        elif destination.queue:
            self._serve(destination, now)
        if destination.in_flight == 0 and not destination.queue:
            self._destinations.pop(destination.name, None)

    def recorded(self, outcomes: int) -> None:
        """So many outcomes became durable, or will never be."""
        were_too_many = self.unrecorded >= self._limits.unrecorded_max
        self.unrecorded -= outcomes
        assert self.unrecorded >= 0
        if were_too_many:
            self._go_on(self._look())

    # -- trust ------------------------------------------------------------------------

    def trust(self, until: float) -> None:
        """Start nothing once the monotonic clock has passed `until`; before it, go on."""
        self._trusted_until = until
        was_trusted = self._trusted
        now = self._look()
        if self._trusted and not was_trusted:
            for destination in self._destinations.values():
                # It was not given the chance to work anything off.
                destination.answered, destination.reviewed_at = 0, now
            self._go_on(now)

    def _look(self) -> int:
        """The wall clock; and whether our shards can still be relied on."""
        self._trusted = self._clock.monotonic() < self._trusted_until
        return self._clock.now()

    def _go_on(self, now: int) -> None:
        """What kept everything from starting is over."""
        for destination in list(self._blocked):
            self._serve_floor(destination, now)
        self._serve_blocked(now)

    def _serve(self, destination: Destination, now: int) -> None:
        queue, in_flight_max = destination.queue, self._limits.in_flight_per_destination_max
        while queue and destination.in_flight < in_flight_max:
            if not self._has_room(destination):
                self._blocked[destination] = None
                return
            shard, timer = queue.popleft()
            self._start(shard, timer, destination, now)

    def _serve_floor(self, destination: Destination, now: int) -> None:
        queue = destination.queue
        while queue and destination.in_flight < IN_FLIGHT_FLOOR and self._has_room(destination):
            shard, timer = queue.popleft()
            self._start(shard, timer, destination, now)

    def _serve_blocked(self, now: int) -> None:
        """One timer of each in turn, as long as the node has room."""
        blocked, limits = self._blocked, self._limits
        while (
            blocked
            and self._trusted
            and self.in_flight < limits.in_flight_max
            and self.unrecorded < limits.unrecorded_max
        ):
            destination = next(iter(blocked))
            del blocked[destination]
            queue = destination.queue
            if queue and destination.in_flight < limits.in_flight_per_destination_max:
                shard, timer = queue.popleft()
                self._start(shard, timer, destination, now)
                blocked[destination] = None

    def _conclude(self, attempt: Attempt, answer: Answer, now: int) -> bool:
        timer, shard = attempt.timer, attempt.shard
        means = verdict(timer.reply, answer)
        if means is COMPLETED or isinstance(means, Completed):
            return self._finish(attempt, "completed", now, None)
        if isinstance(means, Rescheduled):
            at = means.at
            if at <= now:
                namespace = self._namespace(timer.namespace)
                at = now + (namespace.min_delay_s if namespace else 1) * 1000
            self._debug("timer rescheduled", timer, attempt=attempt.number, to=at)
            return shard.conclude(
                attempt,
                put=replace(
                    timer,
                    execute_at=at,
                    scheduled_at=at,
                    updated_at=now,
                    attempts=0,
                    first_attempt_at=None,
                    last_error=None,
                ),
            )
        next_at = self._next_try(attempt, means, now)
        if next_at is None:
            return self._finish(attempt, "failed", now, means.error)
        self._debug("timer retries", timer, attempt=attempt.number, to=next_at, error=means.error)
        return shard.conclude(
            attempt,
            put=replace(
                timer,
                execute_at=next_at,
                updated_at=now,
                attempts=attempt.number,
                first_attempt_at=timer.first_attempt_at or attempt.started_at,
                last_error=means.error,
            ),
        )

    def _next_try(self, attempt: Attempt, means: Failed, now: int) -> int | None:
        timer = attempt.timer
        policy = timer.retry
        if policy is None:
            namespace = self._namespace(timer.namespace)
            policy = namespace.retry_policy if namespace else None
        if policy is None or not means.retryable:
            return None
        return next_try(
            policy,
            attempt=attempt.number,
            first_attempt_at=timer.first_attempt_at or attempt.started_at,
            now=now,
            jitter=self._chance(),
        )

    def _finish(
        self, attempt: Attempt, status: FinalStatus, now: int, last_error: str | None
    ) -> bool:
        timer = attempt.timer
        if self._tells:
            self._say(f"timer {status}", timer, attempt=attempt.number, error=last_error)
        namespace = self._namespace(timer.namespace)
        finished = None
        if namespace is None or namespace.history_retention_s > 0:
            finished = Finished(timer, status, now, attempt.number, last_error)
        return attempt.shard.conclude(attempt, remove=timer, finished=finished)

    # -- destinations that fall behind ------------------------------------------------

    def review(self, now: int) -> None:
        """Once a second: move what a slow destination cannot work off soon to a later time."""
        self._look()
        if not self._trusted:
            return  # They wait for us, not for their destinations.
        floor = self._limits.parked_per_destination_max
        for destination in list(self._destinations.values()):
            elapsed_ms = now - destination.reviewed_at
            if elapsed_ms < REVIEW_MS:
                continue
            destination.rate = destination.answered * 1000 / elapsed_ms
            destination.answered, destination.reviewed_at = 0, now
            destination.moved = 0
            if len(destination.queue) > floor:
                self._shorten(destination, max(floor, int(destination.rate * PARKED_S)))
            else:
                destination.parked_max = None

    def _shorten(self, destination: Destination, parked_max: int) -> None:
        destination.parked_max = parked_max
        queue = destination.queue
        held: list[tuple[Shard, Timer]] = []  # By an operation that may yet let them fire.
        while len(queue) > parked_max:
            shard, timer = queue.pop()
            if not self._defer(shard, timer, destination) and shard.window.get(timer.uuid) is timer:
                held.append((shard, timer))
        queue.extend(reversed(held))
        if destination.moved:
            log.warning(
                "destination falls behind",
                extra={
                    "destination": destination.name,
                    "moved": destination.moved,
                    "parked": len(queue),
                },
            )

    def _defer(self, shard: Shard, timer: Timer, destination: Destination) -> bool:
        """Move the timer to when its turn will come, as far as one can tell."""
        position = len(destination.queue) + destination.moved
        if position * 1000 < destination.rate * DEFER_MS_MAX:
            delay_ms = max(DEFER_MS_MIN, int(position * 1000 / destination.rate))
        else:
            delay_ms = int(DEFER_MS_MAX * (1 + self._chance()) / 2)
        to = self._clock.now() + delay_ms
        if not shard.defer(timer, replace(timer, execute_at=to)):
            return False
        destination.moved += 1
        self._debug("timer deferred", timer, to=to, destination=destination.name)
        return True

    # -- end --------------------------------------------------------------------------

    def stop(self) -> None:
        """Start nothing any more. What is queued stays in the store."""
        self._stopped = True
        self._blocked.clear()
        for destination in self._destinations.values():
            destination.queue.clear()

    @property
    def waiting(self) -> int:
        """How many due timers wait for room."""
        return sum(len(destination.queue) for destination in self._destinations.values())

    # -- logs -------------------------------------------------------------------------

    def _debug(self, event: str, timer: Timer, **facts: object) -> None:
        if self._tells:
            self._say(event, timer, **facts)

    def _say(self, event: str, timer: Timer, **facts: object) -> None:
        log.debug(event, extra={"namespace": timer.namespace, "id": timer.id, **facts})
