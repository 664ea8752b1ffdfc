"""The databases that the whole server is tried on."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from scripts.servers import SERVERS, Server

from tests.servers import Servers, params_of


class Target(NamedTuple):
    """A new database, and the server that it is on, if there is one that may be stopped."""

    url: str
    server: Server | None


def targets() -> list[object]:
    """The parameters of tests that run on every database."""
    return [pytest.param("sqlite", marks=pytest.mark.store("sqlite")), *params_of(*SERVERS)]


_numbers = itertools.count(1)


@contextmanager
def target(name: str, servers: Servers, folder: Path) -> Iterator[Target]:
    """A new database of the named kind."""
    if name == "sqlite":
        yield Target(f"sqlite:///{folder}/timers.db", None)
    else:
        server = servers.get(name)
        url = server.new_url(f"target_{next(_numbers)}")
        yield Target(url, server if server.ours else None)
