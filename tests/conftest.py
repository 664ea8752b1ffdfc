"""What every test may ask for."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import stores_report
from tests.servers import Servers

_SERVERS = pytest.StashKey[Servers]()
_RESULTS = pytest.StashKey[list[stores_report.Result]]()


@pytest.fixture(scope="session")
def servers(pytestconfig: pytest.Config) -> Iterator[Servers]:
    servers = pytestconfig.stash[_SERVERS] = Servers()
    yield servers
    servers.delete()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--stores-report",
        type=Path,
        metavar="FILE",
        help="Append what became of each store's tests; see tests/stores_report.py.",
    )


def pytest_configure(config: pytest.Config) -> None:
    results = config.stash[_RESULTS] = []

    class Recorder:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            result = stores_report.result_of(report)
            if result is not None:
                results.append(result)

    config.pluginmanager.register(Recorder())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    stores_report.mark(items)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    servers = config.stash.get(_SERVERS, None) or Servers()
    for name, version in servers.had.items():
        terminalreporter.line(f"{name}: {version}")
    for name, reason in servers.missing.items():
        terminalreporter.line(f"{name}: NOT TESTED, it cannot be had: {reason}", red=True)
    path = config.getoption("--stores-report")
    if path is not None:
        run = stores_report.Run(config.stash[_RESULTS], servers.had, servers.missing)
        stores_report.append(path, run)
