"""What a world is like, drawn from its seed: how each thing fails, how often, how slowly.

Each seed draws which kinds of faults it has at all, and only then how many ("swarm"): a
world where everything is a little broken finds less than many worlds that are each broken
in their own way. Engine settings are drawn small, so that every bound is met.

Every fourth world is a cluster: three to five nodes that meet in the store. It lives for an
hour or so instead of for half a day, because heartbeats keep it busy all the while.
"""

from dataclasses import dataclass, field
from random import Random
from typing import Literal

from msgspec.structs import replace

from duetime.config import Config

CLUSTER_EVERY = 4
Mood = Literal["calm", "fair", "rough", "terrible"]


@dataclass(slots=True)
class StoreWeather:
    """How the database behaves. Probabilities are for each call."""

    latency_ms: tuple[float, float] = (0.3, 3.0)
    slow_read: float = 0.0
    slow_write: float = 0.0
    slow_ms: tuple[float, float] = (50.0, 1_500.0)
    error_before: float = 0.0
    error_after: float = 0.0
    late: float = 0.0
    """The caller is told that it failed, and it takes effect afterwards."""
    partitioned: bool = False
    """Each shard's batch travels by itself, and some may fail where others do not."""
    writes_in_flight_max: int = 1

    def heal(self) -> None:
        self.latency_ms = (0.3, 3.0)
        self.slow_read = self.slow_write = 0.0
        self.error_before = self.error_after = self.late = 0.0


@dataclass(slots=True)
class Weather:
    """Rates of what happens to a world; counts are for its whole life."""

    mood: Mood
    store: StoreWeather
    config: Config
    busy_s: list[int]
    """Lengths of the busy times; between them the world is left alone for `idle_s`."""
    idle_s: list[int]
    plots: int
    """How many small scenes the workload plays in each busy time."""
    outages: int = 0
    outage_s: tuple[float, float] = (0.5, 20.0)
    thefts: int = 0
    kills: int = 0
    restarts: int = 0
    down_s: tuple[float, float] = (0.05, 30.0)
    freezes: int = 0
    freeze_s: tuple[float, float] = (0.1, 45.0)
    takeover: bool = False
    """Whether another node may start while one is frozen, or beside it for no reason."""
    steps: int = 0
    step_ms: tuple[int, int] = (20, 3_600_000)
    skew_ms_max: int = 0
    drift_ppm_max: float = 0.0
    receivers: dict[str, float] = field(default_factory=lambda: {"quick": 1.0})
    """Weight of each manner that a destination may have."""
    impatient: float = 0.0
    """How often a caller gives up, and its request is canceled wherever it is."""
    nodes: int = 1
    drains: int = 0
    """How often somebody has one node hand its shards over, and takes that back."""
    cuts: int = 0
    """How often one node is cut off, from the others, from the database or from both."""
    cut_s: tuple[float, float] = (0.3, 60.0)
    lost: float = 0.0
    """Share of the calls between nodes during which the connection breaks."""
    delay_ms: tuple[float, float] = (0.1, 1.0)
    """Between nodes."""


def draw(seed: int) -> Weather:
    """The world of this seed."""
    random = Random(f"{seed}:weather")
    weather = _weather(random)
    if seed % CLUSTER_EVERY == 0:
        _make_cluster(weather, random)
    return weather


def _weather(random: Random) -> Weather:
    mood: Mood = random.choices(("calm", "fair", "rough", "terrible"), weights=(2, 3, 4, 3))[0]
    busy = random.randint(1, 3)
    weather = Weather(
        mood=mood,
        store=StoreWeather(
            partitioned=random.random() < 0.4,
            writes_in_flight_max=random.choice((1, 1, 4, 16)),
        ),
        config=_config(random),
        busy_s=[random.randint(15, 90) for _ in range(busy)],
        idle_s=[random.choice((600, 14_400, 40_000)) for _ in range(busy)],
        plots=random.choice((15, 30, 50)),
        skew_ms_max=random.choice((0, 5, 500)),
        drift_ppm_max=random.choice((0.0, 50.0, 500.0)),
        impatient=random.choice((0.0, 0.0, 0.1)),
    )
    if mood == "calm":
        return weather
    level = {"fair": 1, "rough": 2, "terrible": 4}[mood]
    _store_faults(weather.store, random, level)
    for name, chance in (
        ("outages", 0.4),
        ("thefts", 0.4),
        ("kills", 0.5),
        ("restarts", 0.3),
        ("freezes", 0.35),
        ("steps", 0.35),
    ):
        if random.random() < chance:
            setattr(weather, name, random.randint(1, 2 * level))
    weather.steps *= 2
    weather.takeover = random.random() < 0.3
    weather.step_ms = random.choice(((20, 500), (500, 60_000), (60_000, 3_600_000)))
    weather.receivers = {
        manner: random.random()
        for manner in ("quick", "slow", "failing", "hanging", "flapping", "moody")
        if manner == "quick" or random.random() < 0.6
    }
    return weather


def _make_cluster(weather: Weather, random: Random) -> None:
    weather.nodes = random.randint(3, 5)
    weather.idle_s = [random.choice((60, 300, 900)) for _ in weather.idle_s]
    weather.takeover = False  # Here the others take over.
    skew_s_max = random.choice((2, 5, 60))
    weather.drift_ppm_max = min(weather.drift_ppm_max, 50.0)
    weather.config = replace(
        weather.config,
        default_num_shards=random.choice((1, 4, 16, 32)),
        member_timeout_s=random.choice((3, 4, 8)),
        clock_skew_s_max=skew_s_max,
    )
    weather.drains = random.randint(0, 3)
    if weather.mood == "calm":
        # Enough for every callback to end before its shard goes, so that none is sent twice.
        weather.config = replace(
            weather.config,
            drain_timeout_s=10,
            in_flight_max=2_000,
            in_flight_per_destination_max=200,
            parked_per_destination_max=1_000,
            unrecorded_max=10_000,
        )
        weather.receivers = {"quick": 0.5, "slow": 0.5}
        return
    level = {"fair": 1, "rough": 2, "terrible": 4}[weather.mood]
    if random.random() < 0.6:
        weather.cuts = random.randint(1, 2 * level)
    if random.random() < 0.5:
        weather.lost = random.random() * 0.03 * level
    if random.random() < 0.3:
        weather.delay_ms = (0.1, random.choice((20.0, 200.0)))


def _store_faults(store: StoreWeather, random: Random, level: int) -> None:
    if random.random() < 0.6:
        store.slow_read = random.random() * 0.15 * level
    if random.random() < 0.5:
        store.slow_write = random.random() * 0.05 * level
    if random.random() < 0.5:
        store.error_before = random.random() * 0.02 * level
    if random.random() < 0.5:
        store.error_after = random.random() * 0.02 * level
    if random.random() < 0.4:
        store.late = random.random() * 0.01 * level
    if random.random() < 0.3:
        store.latency_ms = (0.3, random.choice((10.0, 40.0)))


def _config(random: Random) -> Config:
    """Small bounds, so that they are reached; sometimes those of production."""
    per_destination = random.choice((1, 2, 5, 200))
    return Config(
        database_url="sim:",
        api_key="k" * 32,
        default_num_shards=random.choice((1, 2, 4, 16)),
        history_retention_s=random.choice((60, 3_600, 604_800)),
        min_delay_s=random.choice((0, 0, 1)),
        purge_interval_s=random.choice((60, 300)),
        in_flight_max=random.choice((2, 5, 50, 2_000)),
        in_flight_per_destination_max=per_destination,
        parked_per_destination_max=random.choice((0, 3, 20, 1_000)),
        unrecorded_max=random.choice((1, 3, 20, 10_000)),
        window_timers_max=random.choice((10, 40, 200, 100_000)),
        window_page_timers=random.choice((1, 2, 5, 20, 1_000)),
        lookahead_s_max=random.choice((5, 20, 60, 300, 300)),
        safety_read_s=random.choice((10, 180, 86_400, 86_400)),
        write_batch_timers_max=random.choice((1, 3, 4_000)),
        drain_timeout_s=random.choice((0, 2, 10)),
    )
