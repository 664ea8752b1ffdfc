"""Results beside their targets: what was promised, what came out, whether it holds."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

Results = Mapping[str, Mapping[str, float]]
"""Scenario -> measure -> value."""

IDLE_READS_PER_MIN_MAX = 10  # "A handful", with room for one wake-up that was not a read.


class Target(NamedTuple):
    """A promise about one measure. `bound` may rest on other values of the same run."""

    scenario: str
    measure: str
    sense: str
    bound: Callable[[Results], float]


def _exactly_none(scenario: str, *measures: str) -> list[Target]:
    return [Target(scenario, measure, "=", lambda _: 0) for measure in measures]


TARGETS = (
    Target("burst", "drain_per_s", ">=", lambda _: 25_000),
    *_exactly_none("burst", "missing", "early", "duplicates"),
    Target("burst-loaded", "drain_per_s", ">=", lambda all_: all_["burst"]["drain_per_s"] / 2),
    *_exactly_none("burst-loaded", "missing", "early", "duplicates"),
    Target("spread", "late_p50_ms", "<=", lambda _: 1.5),
    Target("spread", "late_p99_ms", "<=", lambda _: 5),
    *_exactly_none("spread", "missing", "early", "duplicates"),
    Target("backlog", "spread_late_p99_ms", "<=", lambda all_: all_["spread"]["late_p99_ms"] * 2),
    Target("backlog", "rss_growth_mb", "<=", lambda _: 50),
    Target("backlog", "idle_cpu_percent", "<=", lambda _: 1),
    Target("backlog", "idle_reads_per_min", "<=", lambda _: IDLE_READS_PER_MIN_MAX),
    *_exactly_none("backlog", "spread_missing", "spread_early", "spread_duplicates"),
    Target("accept", "one_by_one_per_s", ">=", lambda _: 8_000),
    Target("accept", "batches_per_s", ">=", lambda _: 50_000),
    *_exactly_none("accept", "missing"),
    *_exactly_none("kill", "missing", "early"),
    Target("kill", "duplicates", "<=", lambda all_: all_["kill"]["unrecorded_at_kill"]),
)


class Verdict(NamedTuple):
    """A target held against a value. `holds` is None where its bound was not measured."""

    target: str
    holds: bool | None


def judge(results: Results, scenario: str, measure: str) -> Verdict | None:
    """What a value is held against; None where nothing was promised."""
    for target in TARGETS:
        if (target.scenario, target.measure) == (scenario, measure):
            try:
                bound = target.bound(results)
            except KeyError:
                return Verdict(f"{target.sense} another, not run", None)
            value = results[scenario][measure]
            holds = {">=": value >= bound, "<=": value <= bound, "=": value == bound}[target.sense]
            return Verdict(f"{target.sense} {show(bound)}", holds)
    return None


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


def table(results: Results, errors: Mapping[str, str]) -> str:
    """All of it as Markdown."""
    rows = []
    for scenario, measures in results.items():
        for measure, value in measures.items():
            verdict = judge(results, scenario, measure)
            held = {None: "", True: "pass", False: "FAIL"}[verdict and verdict.holds]
            rows.append((scenario, measure, show(value), verdict.target if verdict else "", held))
    rows += [("ratio", name, f"{value:.2f}", "", "") for name, value in ratios(results).items()]
    # Of a traceback, its last line says what happened.
    rows += [
        (scenario, "failed", error.strip().splitlines()[-1], "", "FAIL")
        for scenario, error in errors.items()
    ]
    return "\n".join(_lines(("scenario", "measure", "value", "target", ""), rows))


def _lines(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterable[str]:
    yield f"| {' | '.join(head)} |"
    yield "|" + " --- |" * len(head)
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', '/') for cell in row)} |"


def show(value: float) -> str:
    """A number as people read it: whole when large, three digits when small."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
