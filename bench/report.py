"""Results beside their targets: what was promised, what came out, whether it holds."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from bench.databases import SQLITE
from bench.runs import Run

Results = Mapping[str, Mapping[str, float]]
"""Scenario -> measure -> value."""

IDLE_READS_PER_MIN_MAX = 10  # "A handful", with room for one wake-up that was not a read.


class Target(NamedTuple):
    """A promise about one measure. `bound` may rest on other values of the same run."""

    scenario: str
    measure: str
    sense: str
    bound: Callable[[Results], float]
    store: str | None = None
    """The only one that it is made for; None for all."""


def _exactly_none(scenario: str, *measures: str) -> list[Target]:
    return [Target(scenario, measure, "=", lambda _: 0) for measure in measures]


TARGETS = (
    Target("burst", "drain_per_s", ">=", lambda _: 25_000, SQLITE),
    *_exactly_none("burst", "missing", "early", "duplicates"),
    Target("burst-loaded", "drain_per_s", ">=", lambda all_: all_["burst"]["drain_per_s"] / 2),
    *_exactly_none("burst-loaded", "missing", "early", "duplicates"),
    Target("spread", "late_p50_ms", "<=", lambda _: 1.5, SQLITE),
    Target("spread", "late_p99_ms", "<=", lambda _: 5, SQLITE),
    *_exactly_none("spread", "missing", "early", "duplicates"),
    Target("backlog", "spread_late_p99_ms", "<=", lambda all_: all_["spread"]["late_p99_ms"] * 2),
    Target("backlog", "rss_growth_mb", "<=", lambda _: 50),
    Target("backlog", "idle_cpu_percent", "<=", lambda _: 1),
    Target("backlog", "idle_reads_per_min", "<=", lambda _: IDLE_READS_PER_MIN_MAX),
    *_exactly_none("backlog", "spread_missing", "spread_early", "spread_duplicates"),
    Target("accept", "one_by_one_per_s", ">=", lambda _: 8_000, SQLITE),
    Target("accept", "batches_per_s", ">=", lambda _: 50_000, SQLITE),
    *_exactly_none("accept", "missing"),
    *_exactly_none("kill", "missing", "early"),
    Target("kill", "duplicates", "<=", lambda all_: all_["kill"]["unrecorded_at_kill"]),
    Target("idle-shards", "start_s", "<=", lambda _: 5),
    Target("idle-shards", "idle_cpu_percent", "<=", lambda _: 1),
    Target("group-commit", "times", ">=", lambda _: 4, "postgresql"),
    Target("group-commit", "times_without_http", ">=", lambda _: 4, "postgresql"),
    Target("workers", "accept_times", ">=", lambda _: 1.5),
    Target("workers", "batches_times", ">=", lambda _: 1.5),
    Target("workers", "fire_times", ">=", lambda _: 1.5),
    *_exactly_none("workers", "missing_with_1", "missing_with_2"),
    Target("takeover", "first_overdue_s", "<=", lambda _: 8),
    *_exactly_none("takeover", "missing", "early"),
    Target("drain", "drained_s", "<=", lambda _: 2),
    *_exactly_none("drain", "missing", "early", "duplicates"),
    *_exactly_none("wear", "missing"),
    Target("compare", "accepted_per_s", ">=", lambda _: 500),
    Target("compare", "durable_per_s", ">=", lambda _: 500),
    *_exactly_none("compare", "missing", "early", "duplicates"),
)


class Verdict(NamedTuple):
    """A target held against a value. `holds` is None where its bound was not measured."""

    target: str
    holds: bool | None


def judge(results: Results, scenario: str, measure: str, *, store: str) -> Verdict | None:
    """What a value is held against; None where nothing was promised."""
    for target in TARGETS:
        if (target.scenario, target.measure) == (scenario, measure) and target.store in (
            None,
            store,
        ):
            try:
                bound = target.bound(results)
            except KeyError:
                return Verdict(f"{target.sense} another, not run", None)
            value = results[scenario][measure]
            holds = {">=": value >= bound, "<=": value <= bound, "=": value == bound}[target.sense]
            return Verdict(f"{target.sense} {show(bound)}", holds)
    return None


def passed(run: Run) -> bool:
    """Whether every scenario ran and every target held."""
    verdicts = [
        judge(run.results, scenario, measure, store=run.store)
        for scenario, found in run.results.items()
        for measure in found
    ]
    return not run.errors and all(verdict.holds is not False for verdict in verdicts if verdict)


def ratios(results: Results) -> dict[str, float]:
    """Our rates over the machine's own, all of one run."""
    pairs = {
        "burst drain / raw client": ("burst", "drain_per_s", "client_posts_per_s"),
        "accept one by one / SQLite commits": (
            "accept",
            "one_by_one_per_s",
            "sqlite_commits_per_s",
        ),
        "accept batches / SQLite rows": ("accept", "batches_per_s", "sqlite_rows_per_s"),
    }
    found = {}
    for name, (scenario, measure, limit) in pairs.items():
        if measure in results.get(scenario, {}) and limit in results.get("limits", {}):
            found[name] = results[scenario][measure] / results["limits"][limit]
    return found


def table(runs: Sequence[Run]) -> str:
    """All of it as Markdown: for each store a value beside what it is held against."""
    rows: dict[tuple[str, str], dict[str, tuple[str, str]]] = {}
    for run in runs:
        for scenario, measures in run.results.items():
            for measure, value in measures.items():
                verdict = judge(run.results, scenario, measure, store=run.store)
                row = rows.setdefault((scenario, measure), {})
                row[run.store] = (show(value), _told(verdict) if verdict else "")
        for name, ratio in ratios(run.results).items():
            rows.setdefault(("ratio", name), {})[run.store] = (f"{ratio:.2f}", "")
        for scenario, error in run.errors.items():
            # Of a traceback, its last line says what happened.
            told = error.strip().splitlines()[-1]
            rows.setdefault((scenario, "failed"), {})[run.store] = (told, "FAIL")
    head = ["scenario", "measure"]
    for run in runs:
        head += [run.store, "target"]
    cells = [
        [*row, *(cell for run in runs for cell in found.get(run.store, ("", "")))]
        for row, found in rows.items()
    ]
    return "\n".join(_lines(head, cells))


def _told(verdict: Verdict) -> str:
    held = {None: "", True: " pass", False: " FAIL"}[verdict.holds]
    return verdict.target + held


COMPARISON = {
    "accepted/s": "accepted_per_s",
    "fired/s": "fired_per_s",
    "late p50 ms": "late_p50_ms",
    "late p99 ms": "late_p99_ms",
    "round trips per 1,000, burst": "round_trips_per_1000_in_burst",
    "spread": "round_trips_per_1000_in_spread",
    "idle, per s": "round_trips_per_s_idle",
    "source lines": "source_lines",
}


def stores_table(runs: Sequence[Run]) -> str:
    """A line for each store, of what `compare` found."""
    rows = []
    for run in runs:
        found = run.results.get("compare", {})
        values = [show(found[name]) if name in found else "-" for name in COMPARISON.values()]
        rows.append([run.store, run.version, *values, "pass" if passed(run) else "FAIL"])
    return "\n".join(_lines(["store", "server", *COMPARISON, ""], rows))


def _lines(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    yield f"| {' | '.join(head)} |"
    yield "|" + " --- |" * len(head)
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', '/') for cell in row)} |"


def show(value: float) -> str:
    """A number as people read it: whole when large, three digits when small."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
