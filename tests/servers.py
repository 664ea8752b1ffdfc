"""Real servers for tests: each started once in a run, when the first test asks for it."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from scripts.servers import DAEMONS, SERVERS, CannotBeHad, Daemon, Server
from scripts.servers.base import shared_folder


class Servers:
    """Those of this run. One that cannot be had is named at its end, and in CI fails it."""

    def __init__(self) -> None:
        self._started: dict[str, Daemon] = {}
        self.had: dict[str, str] = {}
        """Name -> version."""
        self.missing: dict[str, str] = {}
        """Name -> why."""

    def get(self, name: str) -> Server:
        """A database server."""
        server = self.daemon(name)
        assert isinstance(server, Server)
        return server

    def daemon(self, name: str) -> Daemon:
        if name not in self._started and name not in self.missing:
            try:
                self._start(name)
            except CannotBeHad as error:
                self.missing[name] = str(error)
        if name in self.missing:
            reason = f"{name} cannot be had: {self.missing[name]}"
            if in_ci() and DAEMONS[name].proven:
                pytest.fail(reason, pytrace=False)
            pytest.skip(reason)
        return self._started[name]

    def _start(self, name: str) -> None:
        folder = Path(tempfile.mkdtemp(prefix=f"test-{name}-", dir=shared_folder()))
        server = DAEMONS[name](folder, DAEMONS[name].hasty_settings)
        try:
            self.had[name] = server.fetch()
            server.start()
        except CannotBeHad:
            shutil.rmtree(folder)
            raise
        self._started[name] = server

    def delete(self) -> None:
        for server in self._started.values():
            server.delete()


def in_ci() -> bool:
    return os.environ.get("CI") == "true"


def params_of(*names: str) -> list[object]:
    """Parameters of a fixture or test that is run on each of these servers."""
    return [pytest.param(name, marks=marks_of(name)) for name in names]


def marks_of(name: str) -> list[pytest.MarkDecorator]:
    """When the tests of a server are run, and whose they are."""
    marks = [pytest.mark.server, pytest.mark.store(name)]
    return marks if SERVERS[name].quick else [*marks, pytest.mark.slow]
