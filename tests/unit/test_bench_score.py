"""The bench's arithmetic: what it says must be what happened."""

import pytest
from bench.bench import QUICK
from bench.report import judge, ratios, show, stores_table, table
from bench.runs import Run
from bench.score import Arrival, percentile, score

T0 = 1_700_000_000_000


def arrival(number: int, ms_after: float) -> Arrival:
    return Arrival(number, T0 * 1_000_000 + round(ms_after * 1e6))


def test_lateness_is_arrival_minus_due() -> None:
    result = score([arrival(1, 1.5), arrival(2, 12)], {1: T0, 2: T0 + 10})
    assert result.late_p50_ms == pytest.approx(2.0, abs=0.001)
    assert result.late_max_ms == pytest.approx(2.0, abs=0.001)
    assert (result.arrived, result.missing, result.early, result.duplicates) == (2, 0, 0, 0)


def test_a_drain_counts_from_the_due_instant_and_not_from_the_first_arrival() -> None:
    burst = [arrival(number, 400 + number) for number in range(101)]
    result = score(burst, dict.fromkeys(range(101), T0))
    assert result.drain_s == pytest.approx(0.5, abs=1e-6)
    assert result.drain_per_s == pytest.approx(202, abs=0.01)
    assert result.span_s == pytest.approx(0.1, abs=1e-6)
    assert result.span_per_s == pytest.approx(1010, abs=0.1)


def test_only_the_first_arrival_of_a_timer_counts_and_the_others_are_duplicates() -> None:
    result = score([arrival(1, 5), arrival(1, 900), arrival(1, 901)], {1: T0})
    assert result.duplicates == 2
    assert result.arrived == 1
    assert result.late_max_ms == pytest.approx(5, abs=0.001)
    assert result.drain_s == pytest.approx(0.005, abs=1e-6)


def test_of_arrivals_recorded_out_of_order_the_earliest_is_the_first() -> None:
    result = score([arrival(1, 9), arrival(1, 5)], {1: T0})
    assert result.duplicates == 1
    assert result.late_max_ms == pytest.approx(5, abs=0.001)


def test_a_microsecond_before_the_due_instant_is_early_and_the_instant_itself_is_not() -> None:
    result = score([arrival(1, -0.001), arrival(2, 0)], {1: T0, 2: T0})
    assert result.early == 1


def test_what_never_arrives_is_missing_and_strangers_are_ignored() -> None:
    result = score([arrival(1, 1), arrival(77, 2)], {1: T0, 2: T0, 3: T0})
    assert (result.arrived, result.missing, result.duplicates) == (1, 2, 0)


def test_nothing_arrived_is_all_missing_and_no_rate() -> None:
    result = score([], {1: T0, 2: T0})
    assert (result.arrived, result.missing) == (0, 2)
    assert result.drain_per_s == 0
    assert result.span_per_s == 0


def test_a_percentile_is_a_value_of_the_list() -> None:
    ordered = [float(n) for n in range(1, 101)]
    assert percentile(ordered, 0.5) == 51
    assert percentile(ordered, 0.99) == 100
    assert percentile([7.0], 0.99) == 7


def test_a_target_may_rest_on_another_value_of_the_same_run() -> None:
    results = {
        "burst": {"drain_per_s": 40_000.0},
        "burst-loaded": {"drain_per_s": 19_999.0},
    }
    beside = judge(results, "burst-loaded", "drain_per_s", store="sqlite")
    assert beside is not None
    assert beside.target == ">= 20,000"
    assert beside.holds is False


def test_a_target_on_what_was_not_run_neither_passes_nor_fails() -> None:
    results = {"burst-loaded": {"drain_per_s": 1.0}}
    verdict = judge(results, "burst-loaded", "drain_per_s", store="sqlite")
    assert verdict is not None
    assert verdict.holds is None


def test_a_value_nobody_promised_has_no_verdict() -> None:
    assert judge({"burst": {"timers": 1.0}}, "burst", "timers", store="sqlite") is None


def test_duplicates_after_a_kill_are_held_against_what_was_not_recorded() -> None:
    results = {"kill": {"duplicates": 200.0, "unrecorded_at_kill": 200.0}}
    verdict = judge(results, "kill", "duplicates", store="sqlite")
    assert verdict is not None
    assert verdict.holds is True


def test_ratios_need_both_sides_from_the_same_run() -> None:
    burst = {"burst": {"drain_per_s": 30_000.0}}
    assert ratios(burst) == {}
    limits = {"limits": {"client_posts_per_s": 60_000.0, "sqlite_commits_per_s": 5_000.0}}
    assert ratios(burst | limits) == {"burst drain / raw client": 0.5}


def test_a_target_may_be_one_store_s_alone() -> None:
    results = {"burst": {"drain_per_s": 24_000.0}}
    assert judge(results, "burst", "drain_per_s", store="postgresql") is None


def run(store: str, results: dict[str, dict[str, float]], **errors: str) -> Run:
    return Run(
        at="",
        commit="",
        store=store,
        version=store.title(),
        machine={},
        scale=QUICK,
        results=results,
        errors=errors,
    )


def test_the_table_shows_values_targets_and_failures_of_each_store() -> None:
    burst = {"drain_per_s": 24_000.0, "missing": 0.0}
    first = run("sqlite", {"burst": burst}, kill="Boom:\n a\nb | c")
    text = table([first, run("postgresql", {"burst": burst | {"missing": 1.0}})])
    assert "| scenario | measure | sqlite | target | postgresql | target |" in text
    assert "| burst | drain_per_s | 24,000 | >= 25,000 FAIL | 24,000 |  |" in text
    assert "| burst | missing | 0 | = 0 pass | 1 | = 0 FAIL |" in text
    assert "| kill | failed | b / c | FAIL |  |  |" in text


def test_stores_are_compared_a_line_each() -> None:
    found = {"accepted_per_s": 1_500.0, "late_p99_ms": 2.5, "source_lines": 797.0, "missing": 1.0}
    text = stores_table([run("sqlite", {"compare": found}), run("mongodb", {}, compare="Boom")])
    assert "| sqlite | Sqlite | 1,500 | - | - | 2.5 | - | - | - | 797 | FAIL |" in text
    assert "| mongodb | Mongodb | - | - | - | - | - | - | - | - | FAIL |" in text


@pytest.mark.parametrize(
    ("value", "text"), [(25_000.4, "25,000"), (0.0, "0"), (1.2345, "1.23"), (60.0, "60")]
)
def test_numbers_are_shown_as_people_read_them(value: float, text: str) -> None:
    assert show(value) == text
