import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from duetime.errors import ConfigError
from duetime.stores import SCHEMES, store_from_url


def test_memory_is_the_store_that_keeps_nothing() -> None:
    assert not store_from_url("memory:").traits.durable


@pytest.mark.parametrize("scheme", ["sqlite", "SQLite"])
async def test_three_slashes_name_a_relative_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    monkeypatch.chdir(tmp_path)
    store = store_from_url(f"{scheme}:///timers.db")
    await store.open()
    await store.close()
    assert "timers.db" in os.listdir(tmp_path)


async def test_four_slashes_name_an_absolute_file(tmp_path: Path) -> None:
    store = store_from_url(f"sqlite:///{tmp_path / 'timers.db'}")
    await store.open()
    await store.close()
    assert (tmp_path / "timers.db").exists()


def test_an_unknown_scheme_is_named_and_nothing_else_of_the_url() -> None:
    with pytest.raises(ConfigError) as caught:
        store_from_url("oracel://scott:tiger@db.example/timers")
    assert str(caught.value) == (
        "DATABASE_URL has the unknown scheme 'oracel';"
        " known are memory, sqlite, postgresql, postgres, mysql, mariadb, tidb, oracle, sqlserver,"
        " mongodb, mongodb+srv, cassandra, dynamodb"
    )


@pytest.mark.parametrize("url", ["", "timers.db", ":memory:", "scott/tiger:secret"])
def test_a_url_without_a_scheme_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="DATABASE_URL has no scheme"):
        store_from_url(url)


@pytest.mark.parametrize(
    "url",
    ["sqlite:", "sqlite:///", "sqlite://timers.db", "sqlite:timers.db", "sqlite:///:memory:"],
)
def test_an_sqlite_url_without_a_file_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="must name a file"):
        store_from_url(url)


def test_every_scheme_is_in_the_documentation() -> None:
    root = Path(__file__).parents[2]
    check = [sys.executable, "-m", "scripts.document_stores", "--check"]
    subprocess.run(check, check=True, cwd=root)
    page = (root / "docs" / "stores.md").read_text()
    rows = re.findall(r"^\| ((?:`[a-z+]+`(?:, )?)+) \| (?:nothing|`duetime)", page, re.MULTILINE)
    assert sorted(re.findall(r"[a-z+]+", " ".join(rows))) == sorted(SCHEMES)
