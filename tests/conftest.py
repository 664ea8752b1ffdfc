"""What every test may ask for."""

from collections.abc import Iterator

import pytest

from tests.servers import Servers

_SERVERS = pytest.StashKey[Servers]()


@pytest.fixture(scope="session")
def servers(pytestconfig: pytest.Config) -> Iterator[Servers]:
    servers = pytestconfig.stash[_SERVERS] = Servers()
    yield servers
    servers.delete()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    servers = config.stash.get(_SERVERS, None)
    if servers is None:
        return
    for name, version in servers.had.items():
        terminalreporter.line(f"{name}: {version}")
    for name, reason in servers.missing.items():
        terminalreporter.line(f"{name}: NOT TESTED, it cannot be had: {reason}", red=True)
