"""Why a server on PostgreSQL cannot start: one line that says it."""

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from scripts.servers import Postgresql

from tests.acceptance.processes import run, starting, usual
from tests.servers import Servers

pytestmark = pytest.mark.server
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def server(servers: Servers) -> Postgresql:
    server = servers.get("postgresql")
    assert isinstance(server, Postgresql)
    return server


@pytest.fixture
def url(server: Postgresql, request: Any) -> str:
    """A new database of this test's own."""
    name = f"{request.node.originalname[:55]}_{next(_numbers)}"
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


async def test_a_user_without_rights_is_named_as_the_reason(
    server: Postgresql, url: str, tmp_path: Path
) -> None:
    await _execute(url, "CREATE ROLE powerless LOGIN PASSWORD 'powerless'")
    await _execute(url, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    at = url.rpartition("@")[2]
    settings = usual(tmp_path) | {"DATABASE_URL": f"postgresql://powerless:powerless@{at}"}
    for command in ("serve", "migrate"):
        code, _, err = await run(tmp_path, command, **settings)
        assert (code, err.splitlines()) == (
            1,
            [f"duetime: {at}: this user lacks a right (42501)"],
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"CLUSTER_NAME": "another"}, "'duetime'"),
        ({"NODE_NAME": "a"}, "'a'"),
        ({"DEFAULT_NUM_SHARDS": "32"}, "16"),
    ],
)
async def test_a_node_that_does_not_belong_to_the_cluster_is_refused(
    url: str, tmp_path: Path, other: dict[str, str], reason: str
) -> None:
    settings = {"DATABASE_URL": url, "NODE_NAME": "a"}
    async with starting(tmp_path, **settings) as first:
        await first.logged("listening")
        settings = usual(tmp_path) | settings | {"NODE_NAME": "b"} | other
        code, _, err = await run(tmp_path, "serve", **settings)
        said = [line for line in err.splitlines() if not line.startswith("{")]
        assert code == 2
        assert len(said) == 1, err
        assert reason in said[0]
        assert first.process.returncode is None
