"""What a list of arrivals says: pure arithmetic, the same definitions for every scenario."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct


class Arrival(NamedTuple):
    """One callback at the receiver."""

    number: int
    at_ns: int


class Score(Struct, frozen=True, kw_only=True):
    """How a set of timers fired. Lateness is arrival minus due, of first arrivals only."""

    arrived: int = 0
    missing: int = 0
    early: int = 0
    duplicates: int = 0
    late_p50_ms: float = 0.0
    late_p99_ms: float = 0.0
    late_max_ms: float = 0.0
    drain_s: float = 0.0
    """From the earliest due instant to the last first arrival."""
    span_s: float = 0.0
    """From the first to the last first arrival: flatters whoever claims first, posts later."""

    @property
    def drain_per_s(self) -> float:
        return self.arrived / self.drain_s if self.drain_s > 0 else 0.0

    @property
    def span_per_s(self) -> float:
        return self.arrived / self.span_s if self.span_s > 0 else 0.0


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value that `share` of an ascending list lies below."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def score(arrivals: Iterable[Arrival], due_ms: Mapping[int, int]) -> Score:
    """Judge the arrivals of the timers in `due_ms` (number -> due instant); others are ignored."""
    first: dict[int, int] = {}
    duplicates = 0
    for number, at_ns in arrivals:
        if number not in due_ms:
            continue
        if number in first:
            duplicates += 1
        # Answers of one instant may be recorded out of order across connections.
        first[number] = min(at_ns, first.get(number, at_ns))
    late = sorted(at_ns / 1e6 - due_ms[number] for number, at_ns in first.items())
    if not late:
        return Score(missing=len(due_ms))
    last_ns = max(first.values())
    return Score(
        arrived=len(first),
        missing=len(due_ms) - len(first),
        early=sum(ms < 0 for ms in late),
        duplicates=duplicates,
        late_p50_ms=percentile(late, 0.5),
        late_p99_ms=percentile(late, 0.99),
        late_max_ms=late[-1],
        drain_s=last_ns / 1e9 - min(due_ms.values()) / 1e3,
        span_s=(last_ns - min(first.values())) / 1e9,
    )
