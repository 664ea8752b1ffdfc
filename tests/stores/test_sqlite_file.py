"""What only SQLite can do wrong: its file, its process, its disk."""

import asyncio
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from duetime.errors import SchemaTooNew, StoreError, StoreUnavailable
from duetime.model import CURSOR_MIN, INSTANT_MAX
from duetime.store import DueRead
from duetime.stores.sqlite import SqliteStore, schema
from duetime.stores.sqlite.errors import translated
from duetime.testing.conformance.timers import (
    NOW,
    a_timer,
    batch,
    claimed,
    everything,
    key,
    put,
)

WRITES_UNTIL_KILLED = """
import asyncio, sys
from duetime.stores.sqlite import SqliteStore
from duetime.testing.conformance.timers import NOW, a_timer, batch, claimed

async def main():
    store = SqliteStore(sys.argv[1])
    await store.open()
    lease = await claimed(store)
    number = 0
    while True:
        timers = [a_timer(f"t-{number + n}", at=NOW + number + n) for n in range(7)]
        assert not await store.apply([batch(lease, puts=timers)])
        number += 7
        print(number, flush=True)

asyncio.run(main())
"""
HOLDS_OPEN = """
import asyncio, sys
from duetime.stores.sqlite import SqliteStore

async def main():
    await SqliteStore(sys.argv[1]).open()
    print("open", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""
FILLS_ITS_DISK = """
import asyncio, resource, signal, sys
from duetime.errors import StoreUnavailable
from duetime.stores.sqlite import SqliteStore
from duetime.testing.conformance.timers import a_timer, batch, claimed, everything

async def main():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    store = SqliteStore(sys.argv[1])
    await store.open()
    lease = await claimed(store)
    await store.apply([batch(lease, puts=[a_timer("before")])])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    heavy = b'"' + b"x" * 100_000 + b'"'
    batches = [batch(lease, puts=[a_timer(f"t-{n}", payload=heavy) for n in range(20)])]
    try:
        await store.apply(batches)
    except StoreUnavailable as error:
        print("refused:", error)
    assert [timer.id for timer in await everything(store)] == ["before"]
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not await store.apply(batches)
    print(len(await everything(store)), "stored")
    await store.close()

asyncio.run(main())
"""


def _start(script: str, path: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "timers.db"


async def test_every_acknowledged_row_survives_kill_9(path: Path) -> None:
    process = _start(WRITES_UNTIL_KILLED, path)
    assert process.stdout is not None
    try:
        for _ in range(50):
            assert process.stdout.readline()
    finally:
        process.send_signal(signal.SIGKILL)
    acknowledged = 7 * 50
    for line in process.stdout:
        if line.endswith("\n"):
            acknowledged = int(line)
    process.stdout.close()
    assert process.wait(10) == -signal.SIGKILL

    store = SqliteStore(path)
    await store.open()
    found = [timer.id for timer in await everything(store)]
    await store.close()
    assert len(found) % 7 == 0, "a batch was written in part"
    assert found[:acknowledged] == [f"t-{n}" for n in range(acknowledged)]
    check = sqlite3.connect(path)
    assert check.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    check.close()


async def test_a_second_process_is_refused_until_the_first_is_gone(path: Path) -> None:
    process = _start(HOLDS_OPEN, path)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "open\n"
        second = SqliteStore(path)
        with pytest.raises(StoreUnavailable, match=f"in use by process {process.pid}:"):
            await second.open()
    finally:
        process.kill()
        process.wait(10)
        process.stdout.close()
    await second.open()
    assert await second.shards() == []
    await second.close()


async def test_a_second_store_in_this_process_is_refused_too(path: Path) -> None:
    first, second = SqliteStore(path), SqliteStore(path)
    await first.open()
    with pytest.raises(StoreUnavailable, match="in use"):
        await second.open()
    await claimed(first)
    await first.close()
    await second.open()
    assert len(await second.shards()) == 1
    await second.close()


async def test_a_full_disk_refuses_the_write_and_is_forgotten_when_there_is_space(
    path: Path,
) -> None:
    process = _start(FILLS_ITS_DISK, path)
    output, _ = await asyncio.to_thread(process.communicate, None, 30)
    assert process.returncode == 0
    refused, stored = output.splitlines()
    assert refused.startswith(f"refused: {path}: ")
    assert stored == "21 stored"


async def test_a_database_that_may_not_grow_says_that_the_disk_is_full(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    lease = await claimed(store)
    await store._writer.do(lambda it: it.execute("PRAGMA max_page_count = 40").fetchall())
    heavy = a_timer("heavy", payload=b'"' + b"x" * 300_000 + b'"')
    with pytest.raises(StoreUnavailable, match="the disk is full") as caught:
        await put(store, lease, heavy)
    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
    light = a_timer("light")
    await put(store, lease, light)
    assert await everything(store) == [light]
    await store.close()


async def test_another_programs_lock_is_named(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    lease = await claimed(store)
    await store._writer.do(lambda it: it.execute("PRAGMA busy_timeout = 1").fetchall())
    shell = sqlite3.connect(path, isolation_level=None)
    shell.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="another program holds its lock"):
        await put(store, lease, a_timer())
    shell.execute("ROLLBACK")
    shell.close()
    await put(store, lease, a_timer())
    await store.close()


async def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "missing" / "timers.db")
    with pytest.raises(StoreUnavailable, match=r"timers\.db: .*missing: No such file"):
        await store.open()
    await store.close()


async def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    path.write_bytes(b"this is no database " * 1_000)
    store = SqliteStore(path)
    with pytest.raises(StoreUnavailable, match="not an SQLite database"):
        await store.open()


async def test_a_write_to_a_read_only_file_is_named(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.close()
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    with pytest.raises(sqlite3.OperationalError) as caught:
        connection.execute("CREATE TABLE more (column)")
    connection.close()
    error = translated(caught.value, path)
    assert isinstance(error, StoreUnavailable)
    assert str(error) == f"{path}: its file is read-only (SQLITE_READONLY)"


async def test_a_newer_schema_is_refused_and_left_alone(path: Path) -> None:
    newer = sqlite3.connect(path)
    newer.execute("PRAGMA user_version = 99")
    newer.close()
    with pytest.raises(SchemaTooNew) as caught:
        await SqliteStore(path).open()
    assert (caught.value.found, caught.value.known) == (99, len(schema.MIGRATIONS))
    check = sqlite3.connect(path)
    assert check.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,)
    check.close()


async def test_what_is_missing_is_migrated_and_the_rows_stay(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:1])
    old = SqliteStore(path)
    await old.open()
    await put(old, await claimed(old), a_timer())
    await old.close()

    added = ("CREATE TABLE added (name TEXT)", "INSERT INTO added VALUES ('here')")
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS[:1], added))
    for _ in range(2):
        new = SqliteStore(path)
        await new.open()
        assert await everything(new) == [a_timer()]
        await new.close()
    check = sqlite3.connect(path)
    assert check.execute("SELECT name FROM added").fetchall() == [("here",)]
    assert check.execute("PRAGMA user_version").fetchone() == (2,)
    check.close()


async def test_a_migration_that_fails_leaves_the_schema_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = (*schema.MIGRATIONS, ("CREATE TABLE added (name TEXT)", "CREATE NONSENSE"))
    with monkeypatch.context() as patched:
        patched.setattr(schema, "MIGRATIONS", broken)
        with pytest.raises(StoreError, match="syntax error"):
            await SqliteStore(path).open()
    check = sqlite3.connect(path)
    assert check.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,)
    check.close()
    store = SqliteStore(path)
    await store.open()
    await claimed(store)
    await store.close()


async def test_closing_leaves_one_file_that_holds_everything(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    lease = await claimed(store)
    writes = [
        asyncio.create_task(store.apply([batch(lease, puts=[a_timer(f"t-{n}")])]))
        for n in range(20)
    ]
    await asyncio.sleep(0)
    await store.close()
    assert await asyncio.gather(*writes) == [frozenset()] * 20
    assert not path.with_name("timers.db-wal").exists()
    copy = SqliteStore(shutil.copy(path, path.with_name("copy.db")))
    await copy.open()
    assert len(await everything(copy)) == 20
    await copy.close()


async def test_a_page_of_heavy_timers_is_cut_short(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    lease = await claimed(store)
    heavy = b'"' + b"x" * 100_000 + b'"'
    timers = [a_timer(f"t-{n}", at=NOW + n, payload=heavy) for n in range(150)]
    await put(store, lease, *timers)
    (page,) = await store.due([DueRead(0, CURSOR_MIN, INSTANT_MAX, 1_000)])
    assert page.timers == timers[:100]
    assert page.more
    await store.close()


async def test_a_text_with_a_nul_comes_back_whole(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    lease = await claimed(store)
    timers = [a_timer(name, at=NOW + n) for n, name in enumerate(["a", "a\0", "a\0b"])]
    await put(store, lease, *timers)
    assert await store.get([key(timer) for timer in timers]) == timers
    assert await everything(store) == timers
    await store.close()


async def test_shard_rows_have_the_zero_key_and_instants_are_milliseconds(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await put(store, await claimed(store, 7), a_timer(shard=7))
    await store.close()
    check = sqlite3.connect(path)
    rows = check.execute("SELECT shard_id, row_type, timer_execute_at, timer_uuid FROM timers")
    assert rows.fetchall() == [(7, 1, 1_000, bytes(16)), (7, 2, NOW, a_timer().uuid)]
    check.close()


async def test_a_new_file_is_for_its_owner_alone(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await claimed(store)
    modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    await store.close()
    assert modes == dict.fromkeys(
        ["timers.db", "timers.db-wal", "timers.db-shm", "timers.db.lock"], 0o600
    )


async def test_where_there_can_be_no_log_the_database_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreUnavailable, match="cannot keep its log"):
        await SqliteStore(":memory:").open()


async def test_an_old_sqlite_is_refused_by_its_version(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 36, 0))
    with pytest.raises(StoreError, match=r"too old: 3\.37\.0 is needed"):
        await SqliteStore(path).open()


async def test_a_row_that_another_program_spoiled_is_an_error_of_the_store(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    lease = await claimed(store)
    await put(store, lease, a_timer())
    shell = sqlite3.connect(path)
    with shell:
        shell.execute("UPDATE timers SET timer_details = 'nonsense' WHERE row_type = 2")
    shell.close()
    with pytest.raises(StoreError, match=r"timers\.db: .*DecodeError"):
        await everything(store)
    await store.apply([batch(lease, removes=[a_timer()])])
    assert await everything(store) == []
    await store.close()
