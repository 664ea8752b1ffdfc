"""What a process needs to start, and how it says no: one line each, no traceback."""

import contextlib
import json
import socket
import sqlite3
import stat
from pathlib import Path

import pytest

from duetime import __version__
from duetime.testing.receiver import Receiver
from tests.acceptance.processes import (
    KEY,
    database_url,
    developing,
    instant_in,
    run,
    serving,
    usual,
)


async def test_the_version_is_said(tmp_path: Path) -> None:
    assert await run(tmp_path, "--version") == (0, f"duetime {__version__}\n", "")


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        (
            {"DATABASE_URL": "", "API_KEY": ""},
            ["DATABASE_URL is required. ", "API_KEY is required. "],
        ),
        ({"API_KEY": "hush"}, ["API_KEY must be at least 32 characters, has 4 (environment)"]),
        ({"DATABASE_URL": "postgrs://u:hush@db/x"}, ["DATABASE_URL has the unknown scheme"]),
        ({"DATABASE_URL": "sqlite:x:hush"}, ["DATABASE_URL must name a file"]),
        (
            {"PORT": "eighty", "DRAIN_TIMEOUT": "10"},
            [
                "PORT must be a whole number, got 'eighty' (environment)",
                "DRAIN_TIMEOUT must be a duration such as",
            ],
        ),
        ({"CALLBACK_CA_FILE": "ca.pem"}, ["CALLBACK_CA_FILE must be a file of PEM certificates"]),
    ],
)
async def test_settings_are_refused_by_name_and_rule(
    tmp_path: Path, change: dict[str, str], lines: list[str]
) -> None:
    (tmp_path / "ca.pem").write_text("not a certificate")
    code, out, err = await run(tmp_path, "serve", **(usual(tmp_path) | change))
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == len(lines)
    for said, line in zip(err.splitlines(), lines, strict=True):
        assert said.startswith(f"duetime: {line}")
    assert "hush" not in err


async def test_an_option_that_is_no_good_is_refused_as_a_setting_is(tmp_path: Path) -> None:
    code, _, err = await run(tmp_path, "serve", "--port", "70000", **usual(tmp_path))
    assert code == 2
    assert err == "duetime: PORT must be between 0 and 65535, got 70000 (command line)\n"


async def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, err = await run(tmp_path, "serve", **(usual(tmp_path) | {"PORT": str(port)}))
    assert code == 1
    assert err == f"duetime: cannot listen on 127.0.0.1 port {port}: Address already in use\n"


async def test_a_database_that_is_not_there_is_named(tmp_path: Path) -> None:
    absent = {"DATABASE_URL": f"sqlite:///{tmp_path}/absent/duetime.db"}
    for command in ("serve", "migrate"):
        code, _, err = await run(tmp_path, command, **(usual(tmp_path) | absent))
        assert code == 1
        (line,) = err.splitlines()
        assert line.startswith("duetime: ")
        assert "absent" in line


async def test_a_database_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "duetime.db") as database:
        database.execute("PRAGMA user_version = 999")
    database.close()
    for command in ("serve", "migrate"):
        code, _, err = await run(tmp_path, command, **usual(tmp_path))
        assert code == 1
        (line,) = err.splitlines()
        assert "the database has schema version 999" in line


async def test_a_file_that_is_not_a_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "duetime.db").write_text("not a database, but long enough to look at" * 100)
    code, _, err = await run(tmp_path, "serve", **usual(tmp_path))
    assert code == 1
    assert len(err.splitlines()) == 1
    assert "not an SQLite database" in err


async def test_a_second_process_on_one_database_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as first:
        code, _, err = await run(tmp_path, "serve", **usual(tmp_path))
        assert code == 1
        (line,) = err.splitlines()
        assert f"is in use by process {first.process.pid}:" in line


@pytest.mark.slow
async def test_a_database_that_another_program_locks_is_refused(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "duetime.db", isolation_level=None)
    with contextlib.closing(database):
        database.execute("BEGIN EXCLUSIVE")
        code, _, err = await run(tmp_path, "serve", **usual(tmp_path))
    assert code == 1
    (line,) = err.splitlines()
    assert "another program holds its lock" in line


async def test_migrate_needs_no_key_and_can_be_repeated(tmp_path: Path) -> None:
    for _ in range(2):
        code, out, err = await run(tmp_path, "migrate", DATABASE_URL=database_url(tmp_path))
        assert (code, out, err) == (0, "the sqlite schema is up to date\n", "")


async def test_serve_reads_dotenv_and_the_settings_file(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(f"API_KEY={KEY}\nLOG_LEVEL=debug\n")
    (tmp_path / "duetime.toml").write_text('log_level = "error"\npayload_bytes_max = 2\n')
    async with serving(tmp_path, API_KEY="") as duetime:
        status, answer = await duetime.call(
            "POST",
            "/timers/create",
            {
                "namespace": "default",
                "id": "x",
                "executeAt": instant_in(60),
                "callbackUrl": "http://127.0.0.1:1/",
                "payload": {"long": 1},
            },
        )
        assert (status, answer["error"]) == (413, "PAYLOAD_TOO_LARGE")


async def test_serve_refuses_local_callbacks_unless_they_are_named(tmp_path: Path) -> None:
    async with Receiver() as receiver, serving(tmp_path, CALLBACK_ALLOW_NETWORKS="") as duetime:
        await duetime.v1("timers/create", id="x", executeAt=instant_in(1), callbackUrl=receiver.url)
        line = await duetime.logged("listening")
        assert line["level"] == "info"
        timer = await duetime.until_status("x", "failed")
        assert "CALLBACK_ALLOW_NETWORKS" in timer["lastError"]
        assert receiver.requests == []


async def test_everything_but_health_needs_the_key(tmp_path: Path) -> None:
    async with serving(tmp_path) as duetime:
        duetime.key = KEY[:-1] + "x"
        assert (await duetime.call("GET", "/timers"))[0] == 401
        assert (await duetime.call("GET", "/health"))[0] == 200


async def test_dev_makes_its_key_once_and_keeps_it_to_itself(tmp_path: Path) -> None:
    async with developing(tmp_path) as first:
        key = first.key
        assert len(key) >= 32
        assert first.url.startswith("http://127.0.0.1:")
        code, _, err = await run(tmp_path, "dev", "--port", "0")
        assert code == 1
        assert "is in use by process " in err
    data = tmp_path / ".duetime"
    assert stat.S_IMODE((data / "api-key").stat().st_mode) == 0o600
    assert (data / ".gitignore").read_text() == "*\n"
    async with developing(tmp_path) as second:
        assert second.key == key
        assert (await second.call("GET", "/timers"))[0] == 200


async def test_dev_leaves_the_database_and_key_of_serve_alone(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(f"DATABASE_URL=sqlite:///{tmp_path}/other.db\nAPI_KEY={KEY}\n")
    async with developing(tmp_path) as duetime:
        assert duetime.key != KEY
    assert not (tmp_path / "other.db").exists()


async def test_dev_in_a_directory_of_mine_leaves_my_files_alone(tmp_path: Path) -> None:
    (tmp_path / ".duetime").mkdir()
    async with developing(tmp_path):
        assert not (tmp_path / ".duetime" / ".gitignore").exists()


@pytest.mark.parametrize("content", ["", "short\n", "with a space " * 4])
async def test_dev_refuses_a_key_file_that_is_no_good(tmp_path: Path, content: str) -> None:
    (tmp_path / ".duetime").mkdir()
    (tmp_path / ".duetime" / "api-key").write_text(content)
    code, _, err = await run(tmp_path, "dev", "--port", "0")
    assert code == 2
    assert "api-key" in err
    assert len(err.splitlines()) == 1


async def test_dev_refuses_a_directory_that_it_cannot_have(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, _, err = await run(tmp_path, "dev", "--port", "0", "--data", "file/inside")
    assert code == 1
    assert len(err.splitlines()) == 1
    assert "file/inside" in err


async def test_logs_are_json_lines_without_secrets(tmp_path: Path) -> None:
    async with Receiver() as receiver, serving(tmp_path, LOG_LEVEL="debug") as duetime:
        await duetime.v1(
            "timers/create",
            id="x",
            executeAt=instant_in(1),
            callbackUrl=receiver.url,
            payload={"secret": "hush-payload"},
            callbackHeaders={"Authorization": "hush-header"},
        )
        await duetime.until_status("x", "completed")
        duetime.process.terminate()
        assert await duetime.exit() == 0
    log = json.dumps(duetime.log)
    assert all("timestamp" in line for line in duetime.log), duetime.log
    assert "hush" not in log
    assert KEY not in log
