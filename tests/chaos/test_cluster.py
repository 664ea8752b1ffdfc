"""A little of what `make chaos-cluster` does, on the server that the tests use."""

import pytest
from chaos.account import Verdict
from chaos.cluster.__main__ import table
from chaos.cluster.faults import FAULTS, run
from chaos.report import Report
from scripts.servers import Postgresql

from tests.servers import Servers

TIMES = {"kill": 2, "database-cut": 2, "rolling": 3}


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.parametrize("name", FAULTS)
async def test_after_each_fault_every_timer_is_accounted_for(servers: Servers, name: str) -> None:
    server = servers.get("postgresql")
    assert isinstance(server, Postgresql)
    report = await run(FAULTS[name], server, 1, times=TIMES.get(name, 1))
    assert report.problems == []
    assert ", 0 lost, 0 early, 0 after cancel, " in report.line


def test_the_table_sums_up() -> None:
    reports = {
        "kill": Report("", "", [], Verdict(duplicates=80, early=1), 10, 6_049),
        "drain": Report("", "", [], Verdict(duplicates=5, lost=2, after_cancel=3), 2, 900),
    }
    assert table(reports).splitlines() == [
        "",
        "fault  times  lost  early  after cancel  duplicates  worst lateness",
        "kill   10     0     1      0             80          6.0 s",
        "drain  2      2     0      3             5           0.9 s",
        "",
        "12 faults, 2 lost, 1 early, 3 after cancel, 85 duplicates, worst lateness 6.0 s",
    ]
