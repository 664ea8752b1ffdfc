"""How far the database's clock is away, from answers that are late and coarse."""

from duetime.cluster.skew import Skew

NOW = 1_800_000_000_000


def judged(*ahead_ms: int, took_ms: int = 0, step_ms: int = 1) -> list[bool]:
    """Whether the clock was fine after each answer, with 2 s allowed."""
    skew = Skew(ms_max=2_000)
    verdicts = []
    for ms in ahead_ms:
        skew.measured(NOW + ms - took_ms // 2, NOW, took_ms=took_ms, step_ms=step_ms)
        assert skew.ms == ms
        verdicts.append(skew.is_fine)
    return verdicts


def test_a_clock_is_wrong_beyond_the_limit_and_right_again_within_it() -> None:
    assert judged(0, 2_000, 2_001, 2_001, 2_000, -2_001) == [True, True, False, False, True, False]


def test_what_a_slow_answer_leaves_in_doubt_changes_nothing() -> None:
    assert judged(2_400, 2_600, 1_600, 1_400, took_ms=1_000) == [True, False, False, True]


def test_what_a_coarse_clock_leaves_in_doubt_changes_nothing() -> None:
    assert judged(2_400, 2_600, 1_600, 1_400, step_ms=1_000) == [True, False, False, True]


def test_late_and_coarse_add_up() -> None:
    assert judged(2_900, 3_100, 1_100, 900, took_ms=1_000, step_ms=1_000) == [
        True,
        False,
        False,
        True,
    ]
