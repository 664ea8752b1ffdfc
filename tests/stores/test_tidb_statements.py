"""That TiDB's own parser takes every statement of TiDB's dialect. No server of it can be had for
the tests, so this is what is known of it without one."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from scripts.servers.base import cache

from duetime.stores.mysql.dialects import TIDB
from tests.stores.sql_database import statements_of

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


def _parsed(parser: Path, text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([parser], input=text, capture_output=True, text=True)


@pytest.mark.slow
def test_each_statement_is_one_to_tidb(parser: Path) -> None:
    found = [text for _, text in statements_of(TIDB.dialect)]
    done = _parsed(parser, ";\n".join(found))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == str(len(found))


@pytest.mark.slow
def test_what_is_of_another_product_is_none(parser: Path) -> None:
    collation = "CREATE TABLE t (a VARCHAR(9) COLLATE utf8mb4_nopad_bin)"
    for statement in (collation, "DELETE FROM t RETURNING a"):
        assert _parsed(parser, statement).returncode == 1
