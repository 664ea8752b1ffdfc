"""Every test here runs on both event loops, and fails if either had to swallow an exception."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import trustme
import uvloop

from duetime.delivery.guard import AddressGuard
from duetime.delivery.http import tls_context
from tests.delivery.asking import Asking

LOOPBACK = ("127.0.0.0/8", "::1/128")


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(autouse=True)
async def nothing_escapes_into_the_loop() -> AsyncIterator[None]:
    escaped: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: escaped.append(context))
    yield
    assert escaped == []


@pytest.fixture
async def asking() -> AsyncIterator[Asking]:
    """A client that may reach loopback and trusts the system's roots."""
    async with Asking(AddressGuard(LOOPBACK, False)) as asking:
        yield asking


@pytest.fixture(scope="session")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="session")
def ca_file(ca: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ca") / "ca.pem"
    ca.cert_pem.write_to_path(str(path))
    return path


@pytest.fixture(scope="session")
def trusting(ca_file: Path) -> ssl.SSLContext:
    """What a client uses that was told of the private CA."""
    return tls_context(tls_verify=True, ca_file=str(ca_file))
