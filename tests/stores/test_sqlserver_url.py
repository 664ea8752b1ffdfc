"""What a `DATABASE_URL` of a SQL Server may look like, what its driver needs of the system, and
what its errors become."""

import subprocess
import sys

import pytest

from duetime.errors import ConfigError, StoreError, StoreUnavailable
from duetime.model import INSTANT_MAX
from duetime.routing import timer_uuid
from duetime.stores.sql import statements as sql
from duetime.stores.sqlserver.dialect import SQLSERVER
from duetime.stores.sqlserver.errors import errors
from duetime.stores.sqlserver.server import Server, newest, refusal
from duetime.stores.sqlserver.url import parse

VALUES_MAX = 2_098  # Of a statement; two more are the driver's own.
INDEX_BYTES_MAX = 1_700


class OdbcError(Exception):
    """As pyodbc's: SQLSTATE and a text."""


ERRORS = errors(OdbcError)


def _error(state: str, number: int, said: str = "'secret'") -> OdbcError:
    text = f"[{state}] [Microsoft][ODBC Driver 18 for SQL Server][SQL Server]{said} ({number})"
    return OdbcError(state, f"{text} (SQLExecDirectW)")


def test_what_is_said_is_understood() -> None:
    address = parse(
        "sqlserver://us%40er:p%C3%A4ss@db.example:1434/timers?pool_size=20&statement_timeout=5s"
    )
    assert (address.host, address.port, address.database) == ("db.example", 1_434, "timers")
    assert (address.user, address.password) == ("us@er", "päss")
    assert (address.pool_size, address.statement_timeout_ms) == (20, 5_000)
    assert address.name == "db.example:1434/timers"


def test_what_is_not_said_has_a_default() -> None:
    address = parse("sqlserver://u@db.example/timers")
    assert (address.port, address.password, address.ssl_mode) == (1_433, "", "verify_identity")


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("disabled", "Encrypt={no};TrustServerCertificate={no};"),
        ("required", "Encrypt={yes};TrustServerCertificate={yes};"),
        ("verify_identity", "Encrypt={yes};TrustServerCertificate={no};"),
    ],
)
def test_the_driver_is_told_in_its_own_form(mode: str, said: str) -> None:
    address = parse(f"sqlserver://u:a%3Bb%7Dc@db.example/timers?ssl-mode={mode}")
    assert address.odbc("ODBC Driver 18 for SQL Server") == (
        "DRIVER={ODBC Driver 18 for SQL Server};SERVER={tcp:db.example,1433};DATABASE={timers};"
        f"UID={{u}};PWD={{a;b}}}}c}};{said}APP={{duetime}};ConnectRetryCount={{0}};"
    )


@pytest.mark.parametrize(
    ("rest", "problem"),
    [
        ("", "must have the form sqlserver://user:password@host:1433/database"),
        ("//db.example/timers", "must have the form"),
        ("//u:hush@db.example", "must have the form"),
        ("//u:hush@db.example:99999/timers", "must have the form"),
        ("//u:hush@a.example,b.example/timers", "must have the form"),
        ("//u@db.example/t?password=hush", "has an unknown option 'password'; known are pool_size"),
        ("//u@db.example/t?ssl-mode=verify_ca", "must have one of disabled, required, verify_id"),
        ("//u@db.example/t?statement_timeout=30", "must have a duration from 1s to 1h"),
    ],
)
def test_what_is_wrong_with_it_is_said_without_repeating_it(rest: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"sqlserver:{rest}")
    assert str(caught.value).startswith(f"DATABASE_URL {problem}")
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("missing", "line"),
    [
        (
            "import sys; sys.modules['aioodbc'] = None\n",
            "DATABASE_URL needs the module aioodbc: pip install 'duetime[sqlserver]'",
        ),
        (
            "import sys, types\n"
            "class Broken(types.ModuleType):\n"
            "    def __getattr__(self, name):\n"
            "        raise ImportError('libodbc.so.2: cannot open shared object file')\n"
            "sys.modules['aioodbc'] = types.ModuleType('aioodbc')\n"
            "sys.modules['pyodbc'] = Broken('pyodbc')\n",
            "DATABASE_URL needs unixODBC's libodbc.so.2 and Microsoft's driver:"
            " install the system's packages unixodbc and msodbcsql18",
        ),
    ],
)
def test_what_is_missing_is_one_line_that_says_what_to_install(missing: str, line: str) -> None:
    script = (
        f"{missing}from duetime.stores import store_from_url\n"
        "store_from_url('sqlserver://u:hush@db.example/timers')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == f"duetime.errors.ConfigError: {line}"


def test_of_the_odbc_drivers_the_newest_is_used() -> None:
    there = ["FreeTDS", "ODBC Driver 17 for SQL Server", "ODBC Driver 18 for SQL Server", "SQLite3"]
    assert newest(there, "db.example/timers") == "ODBC Driver 18 for SQL Server"
    assert newest(there[:2], "db.example/timers") == "ODBC Driver 17 for SQL Server"
    with pytest.raises(StoreUnavailable, match="install the system's package msodbcsql18"):
        newest(["FreeTDS"], "db.example/timers")


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        (Server(16, 3, 1, 1), None),
        (Server(12, 5, 1, 1), None),  # Azure's says 12 for ever.
        (Server(13, 3, 1, 1), "SQL Server version 13 is too old: 14 (2017) is needed"),
        (Server(16, 3, 0, 1), "ALTER DATABASE [timers] SET READ_COMMITTED_SNAPSHOT ON first"),
        (
            Server(16, 3, 0, 0),
            "ALTER DATABASE [timers] SET READ_COMMITTED_SNAPSHOT ON, ALLOW_SNAPSHOT_ISOLATION ON"
            " first",
        ),
    ],
)
def test_a_server_that_will_not_do_is_told_why(server: Server, reason: str | None) -> None:
    assert refusal(server, "timers") == reason


@pytest.mark.parametrize(
    ("error", "type_", "reason"),
    [
        (_error("40001", 1205), StoreUnavailable, "other writes were in its way (1205)"),
        (_error("42000", 1222), StoreUnavailable, "a lock was not to be had in time (1222)"),
        (_error("42000", 4060), StoreUnavailable, "there is no such database"),
        (_error("28000", 18456), StoreUnavailable, "it refuses this user or password (18456)"),
        (_error("08S01", 104), StoreUnavailable, "the connection was lost (08S01)"),
        (_error("08001", 111), StoreUnavailable, "it cannot be reached (08001)"),
        (_error("HYT00", 0), StoreUnavailable, "took longer than statement_timeout (HYT00)"),
        (_error("01000", 0, "Can't open lib"), StoreUnavailable, "install the system's package"),
        (_error("42S02", 208), StoreError, "it refused what it was asked (OdbcError, 208)"),
        (OdbcError("HY010", "secret"), StoreError, "(OdbcError, HY010)"),
        (OdbcError("secret"), StoreError, "(OdbcError)"),
        (ConnectionResetError(104, "reset"), StoreUnavailable, "it cannot be reached: reset"),
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
    for number in (1205, 2601, 2627):
        assert ERRORS.is_conflict(_error("40001", number))
    for error in (_error("42000", 1222), _error("08S01", 0), _error("HYT00", 0)):
        assert not ERRORS.is_conflict(error)
    assert ERRORS.spoils_connections(_error("08S01", 104))
    assert ERRORS.spoils_connections(_error("42000", 17142))
    assert not ERRORS.spoils_connections(_error("42000", 1105))


def test_names_are_bytes_in_the_order_of_code_points() -> None:
    names = ["a", "a ", "a!", "e\u0301", "\u00e9", "\uffff", "\U0001f600"]
    taken = [SQLSERVER.lists.name(name) for name in names]
    assert taken == sorted(taken)
    assert len(set(taken)) == len(names)
    assert [SQLSERVER.from_name(name) for name in taken] == names


def test_instants_are_texts_that_every_language_reads_alike() -> None:
    assert SQLSERVER.lists.instant(1_800_000_000_123) == "2027-01-15 08:00:00.123"
    assert SQLSERVER.lists.instant(INSTANT_MAX) == "9999-12-31 23:59:59.999"


def test_no_statement_has_more_values_than_it_takes() -> None:
    rows, reads = SQLSERVER.rows_max, SQLSERVER.reads_max
    forms = [form(SQLSERVER, rows) for form in (sql.lock_shards, sql.release, sql.read_timers)]
    forms += [sql.remove(SQLSERVER, rows), sql.read_due(SQLSERVER, reads)]
    for what in (sql.PUT, sql.RECORD, sql.NUMBER, sql.CLAIM):
        forms += [step.statement for step in sql.upsert(SQLSERVER, what, rows)]
    assert max(form.count("?") for form in forms) <= VALUES_MAX
    uuids = [timer_uuid("default", str(n)) for n in range(10_000)]
    assert len(SQLSERVER.lists.among("timer_uuid", uuids).values) == 1


def test_any_id_fits_into_an_index_beside_a_namespace_that_can_be_made() -> None:
    namespace, name = (
        int(SQLSERVER.types[word].removeprefix("VARBINARY(").rstrip(")"))
        for word in ("document", "name")
    )
    shard, instant = 4 + 2, 8
    assert namespace + name + max(shard, instant) <= INDEX_BYTES_MAX
    assert name == 255 * 4
