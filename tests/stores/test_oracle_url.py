"""What a `DATABASE_URL` of an Oracle may look like, and what the driver's errors become."""

import subprocess
import sys
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import oracledb
import pytest

from duetime.errors import ConfigError, StoreError, StoreUnavailable
from duetime.model import INSTANT_MAX
from duetime.stores import store_from_url
from duetime.stores.oracle.dialect import LIST_MAX, ORACLE
from duetime.stores.oracle.driver import refusal
from duetime.stores.oracle.errors import ERRORS
from duetime.stores.oracle.url import parse
from duetime.stores.sql import statements as sql


def _error(code: str, type_: type[oracledb.Error] = oracledb.DatabaseError) -> oracledb.Error:
    return type_(SimpleNamespace(full_code=code, message=f"{code}: 'secret' is not welcome"))


def test_the_scheme_names_it() -> None:
    store = store_from_url("oracle://user:hush@db.example/timers")
    assert store.traits.name == "oracle"
    assert store.traits.shared


def test_what_is_said_is_understood() -> None:
    address = parse(
        "oracle://us%40er:p%C3%A4ss@db.example:1522/timers.example"
        "?pool_size=20&statement_timeout=5s&ssl-mode=verify_ca"
    )
    assert (address.host, address.port, address.service) == ("db.example", 1_522, "timers.example")
    assert (address.user, address.password) == ("us@er", "päss")
    assert (address.pool_size, address.statement_timeout_ms) == (20, 5_000)
    assert address.name == "db.example:1522/timers.example"
    assert address.tls is not None
    assert not address.checks_identity


def test_what_is_not_said_has_a_default() -> None:
    address = parse("oracle://u@[::1]/timers")
    assert (address.host, address.port, address.password) == ("::1", 1_521, "")
    assert address.tls is None
    assert parse("oracle://u@h/t?ssl-mode=verify_identity").checks_identity


@pytest.mark.parametrize(
    ("rest", "problem"),
    [
        ("", "must have the form oracle://user:password@host:1521/service"),
        ("//db.example/timers", "must have the form"),
        ("//u:hush@db.example", "must have the form"),
        ("//u:hush@db.example:port/timers", "must have the form"),
        ("//u:hush@a.example,b.example/timers", "must have the form"),
        ("//u:hu@sh@db.example/timers", "must have the form"),
        ("//u@db.example/t?password=hush", "has an unknown option 'password'; known are pool_size"),
        ("//u@db.example/t?ssl-mode=preferred", "must have one of disabled, required, verify_ca"),
        ("//u@db.example/t?ssl-ca=/no/ca.pem", "must have the path of a file as ssl-ca"),
        ("//u@db.example/t?pool_size=3", "must have 4 to 1000 as pool_size"),
    ],
)
def test_what_is_wrong_with_it_is_said_without_repeating_it(rest: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        store_from_url(f"oracle:{rest}")
    assert str(caught.value).startswith(f"DATABASE_URL {problem}")
    assert "hush" not in str(caught.value)


def test_files_that_tls_cannot_use_are_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    with pytest.raises(ConfigError, match="names files that TLS cannot use"):
        parse(f"oracle://u@h/t?ssl-mode=required&ssl-ca={tmp_path / 'ca.pem'}")


def test_without_the_driver_the_extra_is_named() -> None:
    script = (
        "import sys; sys.modules['oracledb'] = None\n"
        "from duetime.stores import store_from_url\n"
        "store_from_url('oracle://u:hush@db.example/timers')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == (
        "duetime.errors.ConfigError: DATABASE_URL needs the module oracledb:"
        " pip install 'duetime[oracle]'"
    )


async def test_where_nothing_listens_it_cannot_be_reached() -> None:
    store = store_from_url("oracle://u:hush@127.0.0.1:1/timers")
    with pytest.raises(StoreUnavailable) as caught:
        await store.open()
    assert str(caught.value) == "127.0.0.1:1/timers: it cannot be reached (DPY-6005)"


@pytest.mark.parametrize(
    ("version", "character_set", "reason"),
    [
        ("19.3.0.0.0", "AL32UTF8", None),
        ("23.9.0.25.7", "AL32UTF8", None),
        ("18.4.0.0.0", "AL32UTF8", "Oracle 18.4.0.0.0 is too old: 19 is needed"),
        ("new", "AL32UTF8", "Oracle new is too old: 19 is needed"),
        ("21.3.0.0.0", "WE8ISO8859P1", "its character set is WE8ISO8859P1, and AL32UTF8 is needed"),
    ],
)
def test_a_server_that_will_not_do_is_told_why(
    version: str, character_set: str, reason: str | None
) -> None:
    assert refusal(version, character_set) == reason


@pytest.mark.parametrize(
    ("error", "type_", "reason"),
    [
        (_error("ORA-00060"), StoreUnavailable, "other writes were in its way (ORA-00060)"),
        (_error("ORA-03113"), StoreUnavailable, "the connection was lost (ORA-03113)"),
        (_error("DPY-4011"), StoreUnavailable, "the connection was lost (DPY-4011)"),
        (_error("ORA-01017"), StoreUnavailable, "it refuses this user or password (ORA-01017)"),
        (_error("ORA-00054"), StoreUnavailable, "a lock was not to be had in time (ORA-00054)"),
        (_error("DPY-4024"), StoreUnavailable, "took longer than statement_timeout (DPY-4024)"),
        (_error("ORA-00439"), StoreUnavailable, "its edition has no partitions"),
        (_error("ORA-00942"), StoreError, "it refused what it was asked (DatabaseError, ORA-00942"),
        (oracledb.InterfaceError(), StoreError, "(InterfaceError)"),
        (TimeoutError(), StoreUnavailable, "it did not answer in time"),
    ],
)
def test_an_error_of_the_driver_becomes_the_stores(
    error: Exception, type_: type[StoreError], reason: str
) -> None:
    mine = ERRORS.translated(error, "db.example/timers")
    assert type(mine) is type_
    assert reason in str(mine)
    assert "secret" not in str(mine)


def test_conflicts_and_outages_are_told_apart() -> None:
    for code in ("ORA-00001", "ORA-00060", "ORA-08177"):
        assert ERRORS.is_conflict(_error(code))
    for code in ("ORA-00054", "ORA-30006", "ORA-03113", "DPY-4024"):  # Or nobody knows.
        assert not ERRORS.is_conflict(_error(code))
    for code in ("ORA-03113", "ORA-03114", "ORA-01089", "DPY-4011"):
        assert ERRORS.spoils_connections(_error(code))
    assert not ERRORS.spoils_connections(_error("ORA-01653"))


def test_instants_are_datetimes_without_a_zone() -> None:
    for at in (0, 1, 1_800_000_000_123, INSTANT_MAX):
        taken = ORACLE.lists.instant(at)
        assert isinstance(taken, datetime)
        assert taken.tzinfo is None
        assert ORACLE.from_instant(taken) == at
    assert ORACLE.lists.instant(1) == datetime(1970, 1, 1, 0, 0, 0, 1_000)


def test_a_write_has_one_form_for_any_number_of_rows() -> None:
    for what in (sql.PUT, sql.RECORD, sql.NUMBER, sql.CLAIM):
        one, many = ([step.statement for step in ORACLE.upsert(what, rows)] for rows in (1, 256))
        assert one == many
    assert ORACLE.remove(1) == ORACLE.remove(256)


def test_a_list_too_long_for_it_is_several() -> None:
    condition = ORACLE.lists.among(
        "timer_uuid", [bytes([n % 256]) for n in range(2 * LIST_MAX + 1)]
    )
    assert condition.text.count(" IN (") == 3
    assert condition.text.count("?") == len(condition.values) == 2 * LIST_MAX + 1


def test_no_identifier_is_one_of_its_reserved_words() -> None:
    reserved = {"number", "date", "level", "size", "mode", "comment", "uid", "access", "start"}
    for table in sql.PUT, sql.RECORD, sql.NUMBER, sql.CLAIM:
        assert not reserved & {table.table, *table.columns}
