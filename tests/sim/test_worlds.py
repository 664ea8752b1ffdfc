"""A handful of simulated worlds; `make sim` lives through many more."""

import os
import subprocess
import sys

import pytest
from sim.mutants import MUTANTS, hunt, mutated
from sim.world import World

SEEDS = range(1, 25)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_world_breaks_no_rule(seed: int) -> None:
    violation = World(seed).run()
    assert violation is None, f"{violation.checker}: {violation.message} (make sim SEED={seed})"


def test_the_same_seed_gives_the_same_trace_in_another_process() -> None:
    runs = []
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-m", "sim", "--digest", "--seeds", "4"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        runs.append(done.stdout)
    assert runs[0] == runs[1]
    assert len(set(runs[0].splitlines())) == 4


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_still_fits_the_engine(name: str) -> None:
    with mutated(name):
        pass


@pytest.mark.parametrize(
    "name", ["the store checks no fence", "a held timer may start", "a restart keeps the window"]
)
def test_a_mistake_in_the_engine_is_caught(name: str) -> None:
    assert hunt(name, SEEDS) is not None
