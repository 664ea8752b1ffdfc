"""What a PostgreSQL `DATABASE_URL` may look like, and that no password leaves it."""

import subprocess
import sys
from pathlib import Path

import pytest

from duetime.errors import ConfigError
from duetime.stores import store_from_url
from duetime.stores.postgres.url import parse

LONG_FORM = "postgresql://user:p%40ss@db.example:5433/timers"


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "PostgreSQL"])
def test_both_schemes_name_it(scheme: str) -> None:
    store = store_from_url(f"{scheme}://user:hush@db.example/timers")
    assert store.traits.name == "postgresql"
    assert store.traits.shared


def test_what_is_ours_does_not_reach_the_driver() -> None:
    address = parse(f"{LONG_FORM}?pool_size=20&statement_timeout=5s&sslmode=require")
    assert address.dsn == f"{LONG_FORM}?sslmode=require"
    assert (address.pool_size, address.statement_timeout_ms) == (20, 5_000)
    assert address.name == "db.example:5433/timers"


def test_what_is_not_said_has_a_default() -> None:
    address = parse("postgres://db.example/timers")
    assert address.dsn == "postgresql://db.example/timers"
    assert (address.pool_size, address.statement_timeout_ms) == (10, 30_000)


def test_several_hosts_and_sockets_are_addresses_too() -> None:
    assert parse("postgresql://u:p@a.example:5432,[::1]:5433/timers").several_hosts
    address = parse("postgresql:///timers?host=/run/postgresql")
    assert address.name == "/run/postgresql/timers"
    assert not address.several_hosts


@pytest.mark.parametrize("pool_size", [4, 5, 10, 1_000])
def test_writes_and_lists_together_leave_connections_for_reads(pool_size: int) -> None:
    store = store_from_url(f"postgresql://db.example/timers?pool_size={pool_size}")
    assert 1 <= store.traits.writes_in_flight_max < pool_size - pool_size // 4


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("postgresql:", "must have the form"),
        ("postgresql://", "must have the form"),
        ("postgresql://u:hush@db.example", "must have the form"),
        ("postgresql://u:hush@db.example/", "must have the form"),
        ("postgresql://u:hush@db.example:port/timers", "must have the form"),
        ("postgresql://u:hush@db.example/timers?pool_size", "must have the form"),
        # A password that is not escaped ends up elsewhere.
        ("postgresql://u:hush/1@db.example/timers", "must have the form"),
        ("postgresql://u:12/hush@db.example/timers", "must have the form"),
        ("postgresql://u:hu#sh@db.example/timers", "must have the form"),
        ("postgresql://u:hu@sh@db.example/timers", "must have the form"),
        ("postgresql://u:1?hush=@db.example/timers", "must have the form"),
        ("postgresql://u@db.example/t?password=hush", "has an unknown option 'password'; known"),
        ("postgresql://db.example/t?hush%40=1", "has an unknown option; known are pool_size"),
        ("postgresql://db.example/t?pool_size=3", "must have 4 to 1000 as pool_size"),
        ("postgresql://db.example/t?pool_size=many", "must have 4 to 1000 as pool_size"),
        ("postgresql://db.example/t?statement_timeout=30", "must have a duration from 1s to 1h"),
        ("postgresql://db.example/t?statement_timeout=500ms", "must have a duration from 1s"),
        ("postgresql://db.example/t?sslmode=yes", "must have one of disable, allow, prefer,"),
        ("postgresql://db.example/t?sslrootcert=/no/ca.pem", "path of a file as sslrootcert"),
        ("postgresql://db.example/t?host=/run", "the folder of a socket as host, and then no"),
        ("postgresql:///t?host=db.example", "must have the folder of a socket as host"),
    ],
)
def test_what_is_wrong_with_it_is_said_without_repeating_it(url: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        store_from_url(url)
    assert str(caught.value).startswith(f"DATABASE_URL {problem}") or problem in str(caught.value)
    assert "hush" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_the_driver_the_extra_is_named(tmp_path: Path) -> None:
    script = (
        "import sys; sys.modules['asyncpg'] = None\n"
        "from duetime.stores import store_from_url\n"
        "store_from_url('memory:')\n"
        "store_from_url('postgresql://u:hush@db.example/timers')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == (
        "duetime.errors.ConfigError: DATABASE_URL needs the module asyncpg:"
        " pip install 'duetime[postgresql]'"
    )
