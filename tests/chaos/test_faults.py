"""A little of what `make chaos` and `make fuzz` do, so that they keep working."""

from pathlib import Path

import pytest
from chaos.faults import kill

from fuzz import wire

pytestmark = pytest.mark.slow


async def test_killed_a_few_times_every_timer_is_accounted_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kill, "KILLS", 3)
    report = await kill.run(1)
    assert report.problems == []
    assert report.line.startswith("3 kills, 0 lost, 0 early, 0 after cancel, ")


async def test_a_few_hostile_conversations_do_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "CONVERSATIONS", 200)
    assert (await wire.run(tmp_path, 1)).problems == []
