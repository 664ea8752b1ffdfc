"""What a `DATABASE_URL` of MySQL's family may look like, and that no password leaves it."""

import subprocess
import sys
from pathlib import Path

import pytest
from asyncmy.errors import InterfaceError, InternalError, OperationalError, ProgrammingError

from duetime.errors import ConfigError, StoreError, StoreUnavailable
from duetime.stores import store_from_url
from duetime.stores.mysql.dialects import MARIADB, MYSQL, TIDB, Product
from duetime.stores.mysql.driver import refusal
from duetime.stores.mysql.errors import ERRORS
from duetime.stores.mysql.url import parse


@pytest.mark.parametrize("scheme", ["mysql", "mariadb", "tidb"])
def test_each_product_has_a_scheme_of_its_own(scheme: str) -> None:
    store = store_from_url(f"{scheme}://user:hush@db.example/timers")
    assert store.traits.name == scheme
    assert store.traits.shared


def test_what_is_said_is_understood() -> None:
    url = "mysql://us%40er:p%C3%A4ss@db.example:3307/timers?pool_size=20&statement_timeout=5s"
    address = parse(url, MYSQL)
    assert (address.host, address.port, address.database) == ("db.example", 3_307, "timers")
    assert (address.user, address.password) == ("us@er", "päss".encode())
    assert (address.pool_size, address.statement_timeout_ms) == (20, 5_000)
    assert address.name == "db.example:3307/timers"


def test_what_is_not_said_has_a_default() -> None:
    address = parse("tidb://db.example/timers", TIDB)
    assert (address.port, address.user, address.password) == (4_000, None, b"")
    assert (address.pool_size, address.statement_timeout_ms) == (10, 30_000)
    assert address.ssl_mode == "preferred"
    assert parse("mariadb://[::1]/timers", MARIADB).host == "::1"


@pytest.mark.parametrize(
    ("rest", "problem"),
    [
        ("", "must have the form mysql://user:password@host:3306/database"),
        ("//", "must have the form"),
        ("///timers", "must have the form"),
        ("//u:hush@db.example", "must have the form"),
        ("//u:hush@db.example:port/timers", "must have the form"),
        ("//u:hush@db.example:99999/timers", "must have the form"),
        ("//u:hush@a.example,b.example/timers", "must have the form"),
        ("//u:hush/1@db.example/timers", "must have the form"),
        ("//u:hu@sh@db.example/timers", "must have the form"),
        ("//u@db.example/t?password=hush", "has an unknown option 'password'; known are pool_size"),
        ("//db.example/t?ssl-mode=yes", "must have one of disabled, preferred, required, verify"),
        ("//db.example/t?ssl-ca=/no/ca.pem", "must have the path of a file as ssl-ca"),
        ("//db.example/t?pool_size=3", "must have 4 to 1000 as pool_size"),
        ("//db.example/t?statement_timeout=30", "must have a duration from 1s to 1h"),
    ],
)
def test_what_is_wrong_with_it_is_said_without_repeating_it(rest: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        store_from_url(f"mysql:{rest}")
    assert str(caught.value).startswith(f"DATABASE_URL {problem}")
    assert "hush" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_tls_cannot_use_are_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    for options in ("ssl-ca={}", "ssl-cert={}"):
        with pytest.raises(ConfigError, match="names files that TLS cannot use"):
            store_from_url(f"mysql://db.example/t?{options.format(tmp_path / 'ca.pem')}")
    with pytest.raises(ConfigError, match="must have ssl-cert beside ssl-key"):
        store_from_url(f"mysql://db.example/t?ssl-key={tmp_path / 'ca.pem'}")


@pytest.mark.parametrize("scheme", ["mysql", "mariadb", "tidb"])
def test_without_the_driver_the_extra_is_named(scheme: str) -> None:
    script = (
        "import sys; sys.modules['asyncmy'] = None\n"
        "from duetime.stores import store_from_url\n"
        f"store_from_url('{scheme}://u:hush@db.example/timers')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == (
        "duetime.errors.ConfigError: DATABASE_URL needs the module asyncmy:"
        " pip install 'duetime[mysql]'"
    )


@pytest.mark.parametrize(
    ("product", "version", "reason"),
    [
        (MYSQL, "9.7.4-2", None),
        (MYSQL, "8.0.19", None),
        (MYSQL, "8.0.18", "MySQL 8.0.18 is too old: 8.0.19 is needed"),
        (MYSQL, "10.11.19-MariaDB-0+deb12u1", "it is MariaDB 10.11.19-MariaDB-0+deb12u1, and the"),
        (MYSQL, "8.0.11-TiDB-v8.5.0", "it is TiDB 8.0.11-TiDB-v8.5.0, and the URL says MySQL"),
        (MARIADB, "5.5.5-10.11.19-MariaDB", None),
        (MARIADB, "10.5.1-MariaDB", "MariaDB 10.5.1-MariaDB is too old: 10.6.0 is needed"),
        (MARIADB, "9.7.4", "it is MySQL 9.7.4, and the URL says MariaDB"),
        (TIDB, "8.0.11-TiDB-v8.5.0", None),
        (TIDB, "8.0.11-TiDB-v7.5.1", "TiDB 7.5.1 is too old: 8.0.0 is needed"),
        (TIDB, "9.7.4", "it is MySQL 9.7.4, and the URL says TiDB"),
        (MYSQL, "nine", "MySQL nine is too old: 8.0.19 is needed"),
    ],
)
def test_a_product_is_known_by_its_version(
    product: Product, version: str, reason: str | None
) -> None:
    found = refusal(product, version)
    assert found == reason if reason is None else (found or "").startswith(reason)


@pytest.mark.parametrize(
    ("error", "type_", "reason"),
    [
        (OperationalError(2013, "Lost connection"), StoreUnavailable, "the connection was lost"),
        (InterfaceError(0, "Not connected"), StoreUnavailable, "the connection was lost (2013)"),
        (OperationalError(1927, "killed"), StoreUnavailable, "somebody ended the connection"),
        (OperationalError(9007, "x"), StoreUnavailable, "other writes were in its way (9007)"),
        (OperationalError(8501, "x"), StoreUnavailable, "nobody knows what became of a commit"),
        (ConnectionRefusedError(111, "Connection refused"), StoreUnavailable, "refused"),
        (TimeoutError(), StoreUnavailable, "it did not answer in time"),
        (ProgrammingError(1146, "secret"), StoreError, "(ProgrammingError, 1146)"),
        (InternalError("Packet sequence number wrong"), StoreError, "(InternalError)"),
    ],
)
def test_an_error_of_the_driver_becomes_the_stores(
    error: Exception, type_: type[StoreError], reason: str
) -> None:
    mine = ERRORS.translated(error, "db.example/timers")
    assert type(mine) is type_
    assert str(mine).startswith("db.example/timers: ")
    assert reason in str(mine)
    assert "secret" not in str(mine)


def test_conflicts_and_outages_are_told_apart() -> None:
    for code in (1213, 1020, 8002, 8005, 8022, 8028, 9007):
        assert ERRORS.is_conflict(OperationalError(code, "x"))
    for code in (1205, 2013, 8501, 1062):  # Not undone, or not known to be.
        assert not ERRORS.is_conflict(OperationalError(code, "x"))
    assert ERRORS.spoils_connections(OperationalError(1053, "x"))
    assert ERRORS.spoils_connections(OperationalError(1290, "x"))
    assert ERRORS.spoils_connections(ConnectionResetError())
    assert not ERRORS.spoils_connections(OperationalError(1114, "x"))
