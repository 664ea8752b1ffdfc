"""Why a server on PostgreSQL cannot start: one line that says it."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from scripts.servers import Postgresql

from tests.acceptance.processes import run, usual
from tests.servers import Servers

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def server(servers: Servers) -> Postgresql:
    server = servers.get("postgresql")
    assert isinstance(server, Postgresql)
    return server


@pytest.fixture
def url(server: Postgresql, request: Any) -> str:
    """A new database of this test's own."""
    name = request.node.name.partition("[")[0][:60]
    asyncio.run(_execute(server.url, f"CREATE DATABASE {name}"))
    return server.url_of(name)


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


@pytest.mark.parametrize(
    ("change", "code", "reason"),
    [
        (lambda url: url.replace("@", "x@"), 1, "it refuses this user or password (28P01)"),
        (lambda url: url + "_not", 1, "there is no such database (3D000)"),
        (lambda url: url.replace("127.0.0.1", "127.0.0.2"), 1, "it cannot be reached: "),
        (lambda url: url + "?pool=1", 2, "DATABASE_URL has an unknown option 'pool'; known are"),
    ],
)
async def test_why_it_cannot_start_is_one_line(
    server: Postgresql, tmp_path: Path, change: Callable[[str], str], code: int, reason: str
) -> None:
    url = change(server.url)
    password = server.url.split(":")[2].partition("@")[0]
    for command in ("serve", "migrate"):
        found, _, err = await run(tmp_path, command, **(usual(tmp_path) | {"DATABASE_URL": url}))
        assert found == code
        said = [line for line in err.splitlines() if not line.startswith("{")]
        assert len(said) == 1, err
        assert reason in said[0]
        assert password not in err


async def test_a_newer_schema_is_refused(url: str, tmp_path: Path) -> None:
    await run(tmp_path, "migrate", DATABASE_URL=url)
    await _execute(url, "UPDATE duetime_schema SET version = 99")
    for command in ("serve", "migrate"):
        code, _, err = await run(tmp_path, command, **(usual(tmp_path) | {"DATABASE_URL": url}))
        assert code == 1
        assert "the database has schema version 99" in err.splitlines()[-1]
