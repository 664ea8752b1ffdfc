"""That TiDB's own parser takes every statement of TiDB's dialect. No server of it can be had for
the tests, so this is what is known of it without one."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from scripts.servers.base import cache

from duetime.store import ListCursor, ListQuery
from duetime.stores.mysql.dialects import TIDB
from duetime.stores.sql import schema
from duetime.stores.sql import statements as sql
from duetime.stores.sql.listing import arms_of, rows_of

SOURCE = Path(__file__).parents[2] / "scripts/servers/tidb_parser"
PROGRAM = "tidb-parser-20250324"  # The version in its go.mod.


@pytest.fixture(scope="module")
def parser() -> Path:
    program = cache() / PROGRAM
    if not program.exists():
        if shutil.which("go") is None:
            pytest.skip("there is no Go to build it with")
        new = program.with_name(f"{PROGRAM}-{os.getpid()}")
        build = ["go", "build", "-mod=readonly", "-o", str(new), "."]
        done = subprocess.run(build, cwd=SOURCE, capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"it cannot be built: {done.stderr.strip().splitlines()[-1]}")
        new.rename(program)
    return program


def statements() -> list[str]:
    """All that the store ever asks of a TiDB, but for what it says to each session."""
    dialect = TIDB.dialect
    found = [it.format_map(dialect.types) for version in schema.MIGRATIONS for it in version]
    for rows in (1, 2, dialect.rows_max):
        forms = (sql.lock_shards, sql.release, sql.remove, sql.read_timers)
        found += [form(dialect, rows) for form in forms]
        upserts = (sql.PUT, sql.RECORD, sql.NUMBER, sql.CLAIM)
        found += [sql.upsert(dialect, what, rows) for what in upserts]
    for reads in (1, dialect.reads_max):
        found += [sql.read_due(dialect, reads), sql.read_outcomes(dialect, reads)]
    found += [dialect.read_now, dialect.purge, sql.READ_SHARDS, sql.READ_DOCUMENTS]
    found += [sql.INSERT_DOCUMENT, sql.UPDATE_DOCUMENT, sql.DELETE_DOCUMENT]
    for query in (
        ListQuery(namespace="default", num_shards=8, without=frozenset([bytes(16)])),
        ListQuery(namespace="default", num_shards=8, sort="created_at", descending=True),
        ListQuery(namespace="default", num_shards=8, after=ListCursor(1, bytes(16), 1)),
        ListQuery(namespace="default", num_shards=8, id_prefix="a", execute_from=1),
    ):
        arms = arms_of(query, dialect.lists)
        found += [rows_of(arms, query, dialect.lists).text, *(arm.count().text for arm in arms)]
    return found


def _parsed(parser: Path, text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([parser], input=text, capture_output=True, text=True)


@pytest.mark.slow
def test_each_statement_is_one_to_tidb(parser: Path) -> None:
    found = statements()
    done = _parsed(parser, ";\n".join(found))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == str(len(found))


@pytest.mark.slow
def test_what_is_of_another_product_is_none(parser: Path) -> None:
    collation = "CREATE TABLE t (a VARCHAR(9) COLLATE utf8mb4_nopad_bin)"
    for statement in (collation, "DELETE FROM t RETURNING a"):
        assert _parsed(parser, statement).returncode == 1
