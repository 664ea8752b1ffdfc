"""Real etcds for tests."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.servers import Etcd
from scripts.servers.base import shared_folder
from scripts.servers.etcd import trio

from tests.servers import Servers


def etcd_of(servers: Servers) -> Etcd:
    """The one of this run, running. Each test has keys of its own there."""
    server = servers.daemon("etcd")
    assert isinstance(server, Etcd)
    if server.pid is None:
        server.start()
    return server


@contextmanager
def own_etcd(servers: Servers, **settings: str) -> Iterator[Etcd]:
    """One that other tests do not use. Settings have `_` for `-`."""
    servers.daemon("etcd")  # Or the test is skipped.
    folder = Path(tempfile.mkdtemp(prefix="test-etcd-", dir=shared_folder()))
    server = Etcd(folder, {name.replace("_", "-"): value for name, value in settings.items()})
    try:
        server.start()
        yield server
    finally:
        server.delete()


@contextmanager
def three(servers: Servers) -> Iterator[list[Etcd]]:
    """Members of one etcd."""
    servers.daemon("etcd")
    folder = Path(tempfile.mkdtemp(prefix="test-etcd-", dir=shared_folder()))
    members = trio(folder)
    try:
        yield members
    finally:
        for each in members:
            each.delete()
        folder.rmdir()
