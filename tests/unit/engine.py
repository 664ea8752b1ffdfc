"""What the tests of the engine share: timers, and a host that writes down what shards ask."""

import random

from duetime.model import Cursor, Lease, Timer
from duetime.retry import Answer
from duetime.routing import shard_of, timer_uuid
from duetime.shard import Shard
from duetime.store import DueRead, Page
from duetime.testing.clock import FakeClock
from duetime.writes import Attempt, Write

LAST_UUID = b"\xff" * 16


def timer(id: str = "a", at: int = 0, *, url: str = "http://receiver/x", **fields: object) -> Timer:
    values: dict[str, object] = {
        "namespace": "default",
        "id": id,
        "uuid": timer_uuid("default", id),
        "shard": shard_of(id, 1),
        "execute_at": at,
        "callback_url": url,
        "created_at": 0,
        "updated_at": 0,
        "scheduled_at": at,
        "timeout_s": 30,
        "reply": "v1",
    }
    return Timer(**{**values, **fields})  # type: ignore[arg-type]


class Limits:
    window_page_timers = 4
    lookahead_s_max = 300


class RecordingHost:
    """The world as a shard sees it; the test plays its part by hand."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.due: list[Timer] = []
        self.reads: list[tuple[DueRead, int]] = []
        self.wakes: list[int] = []
        self.recovering: list[Shard] = []
        self.lost_shards: list[Shard] = []
        self.vacated_shards: list[Shard] = []
        self.outcomes = 0
        self.room = 1_000
        self.share = 1_000

    def fire(self, shard: Shard, due: list[Timer]) -> None:
        self.due.extend(due)

    def write(self, shard: Shard, *, urgent: bool) -> None:
        pass

    def read(self, shard: Shard, read: DueRead) -> None:
        self.reads.append((read, shard.generation))

    def wake(self, shard: Shard, at: int) -> None:
        self.wakes.append(at)

    def recover(self, shard: Shard) -> None:
        self.recovering.append(shard)

    def lost(self, shard: Shard) -> None:
        self.lost_shards.append(shard)

    def vacated(self, shard: Shard) -> None:
        self.vacated_shards.append(shard)

    def recorded(self, outcomes: int) -> None:
        self.outcomes += outcomes

    def window_room(self) -> int:
        return self.room

    def window_share(self) -> int:
        return self.share

    def now(self) -> int:
        return self.clock.now()


class Answers:
    """An attempt host that only remembers."""

    def __init__(self) -> None:
        self.heard: list[tuple[Attempt, Answer]] = []

    def stands(self, attempt: Attempt) -> bool:
        return True

    def answered(self, attempt: Attempt, answer: Answer) -> None:
        self.heard.append((attempt, answer))


def new_shard(host: RecordingHost) -> Shard:
    return Shard(Lease(0, 1, "node"), host=host, limits=Limits())


def opened(host: RecordingHost, *rows: Timer) -> Shard:
    """A shard whose window has been loaded once from a store that holds `rows`."""
    shard = new_shard(host)
    shard.step(host.clock.now())
    deliver(shard, host, *rows)
    return shard


def deliver(shard: Shard, host: RecordingHost, *rows: Timer) -> None:
    """Answer the oldest read as a store that holds `rows` would."""
    read, generation = host.reads.pop(0)
    matching = sorted(
        (t for t in rows if t.cursor > read.after and t.execute_at <= read.until), key=cursor
    )
    page = Page(matching[: read.limit], len(matching) > read.limit)
    shard.loaded(read, page, generation=generation)


def cursor(timer: Timer) -> Cursor:
    return timer.cursor


def write_now(shard: Shard) -> list[Write]:
    """What the writer does when the store agrees."""
    _, writes = shard.take_batch(1_000, 1_000)
    shard.written(writes)
    return writes


def shuffled(items: list[Timer], seed: int) -> list[Timer]:
    items = list(items)
    random.Random(seed).shuffle(items)
    return items
