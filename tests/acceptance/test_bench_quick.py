"""The bench itself works: a small run of it, with real processes."""

import sys
from pathlib import Path
from subprocess import run

import msgspec
import pytest
from bench.processes import ROOT
from bench.runs import Run


@pytest.mark.slow
def test_a_quick_run_measures_loses_nothing_and_keeps_its_results(tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    command = [sys.executable, "-m", "bench", "--quick", "--out", str(out)]
    for scenarios in (["limits", "burst"], ["kill"]):
        ended = run([*command, *scenarios], cwd=ROOT, capture_output=True, text=True, timeout=120)
        assert ended.returncode == 0, ended.stderr
        assert f"| {scenarios[-1]} | missing | 0 | = 0 pass |" in ended.stdout

    first, second = msgspec.json.decode(out.read_bytes(), type=list[Run])
    assert first.results["burst"]["drain_per_s"] > 0
    assert first.results["limits"]["client_posts_per_s"] > 0
    assert second.results["kill"]["early"] == 0
