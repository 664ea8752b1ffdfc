"""What a MySQL or a MariaDB can do to us: it stops, restarts, refuses, is slow, or is another."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import pytest_asyncio
from asyncmy.errors import MySQLError
from msgspec import structs
from scripts.servers import Mariadb

from duetime.errors import StoreError, StoreUnavailable
from duetime.model import INSTANT_MAX
from duetime.store import ListQuery
from duetime.stores import mysql as mysql_module
from duetime.stores import store_from_url
from duetime.stores.mysql.dialects import MARIADB, MYSQL
from duetime.stores.sql import connections, schema
from duetime.stores.sql import store as store_module
from duetime.stores.sql.store import SqlStore
from duetime.testing.conformance.timers import (
    NOW,
    a_timer,
    batch,
    claimed,
    everything,
    finished,
    key,
    put,
)
from tests.stores.failures import ServerFailures
from tests.stores.mysql_database import MysqlDatabase, asked, new_database, with_connection
from tests.stores.proxy import Proxy

pytestmark = pytest.mark.server

SHARD_ROW = "FROM timers WHERE shard_id = {} AND row_type = 1 FOR UPDATE"


def store_at(url: str) -> SqlStore:
    store = store_from_url(url)
    assert isinstance(store, SqlStore)
    return store


@pytest_asyncio.fixture
async def store(mysql: MysqlDatabase) -> AsyncIterator[SqlStore]:
    store = store_at(mysql.url)
    await store.open()
    yield store
    await store.close()


@contextmanager
def global_setting(mysql: MysqlDatabase, name: str, value: object) -> Iterator[None]:
    """For connections that are made meanwhile."""
    ((before,),) = asyncio.run(asked(mysql.url, f"SELECT @@GLOBAL.{name}"))
    asyncio.run(asked(mysql.url, f"SET GLOBAL {name} = {value}"))
    try:
        yield
    finally:
        asyncio.run(asked(mysql.url, f"SET GLOBAL {name} = {before}"))


class TestMysqlFailures(ServerFailures):
    bounds = store_module
    pool_bounds = connections

    @pytest.fixture
    def server(self, mysql_server: Mariadb) -> Mariadb:
        return mysql_server

    @pytest.fixture
    def database(self, mysql: MysqlDatabase) -> MysqlDatabase:
        return mysql

    @pytest.fixture(params=[signal.SIGTERM, signal.SIGKILL])
    def how(self, request: Any) -> Any:
        return request.param

    @pytest.fixture(params=[1213, 9007])
    def conflict(self, request: Any) -> Any:
        return request.param

    @pytest.fixture(
        params=[
            (1021, "its disk is full"),
            (1038, "it has no memory left"),
            (1114, "its disk or a table is full"),
            (1142, "this user lacks a right"),
            (1205, "a lock was not to be had in time"),
            (1290, "it can only be read"),
            (1317, "somebody ended the statement"),
            (1836, "it can only be read"),
            (3024, "a statement took longer than statement_timeout"),
        ]
    )
    def outage(self, request: Any) -> Any:
        return request.param


async def test_idle_connections_that_were_closed_are_replaced_unnoticed(
    mysql: MysqlDatabase, store: SqlStore
) -> None:
    lease = await claimed(store)
    await asyncio.gather(*[store.now() for _ in range(5)])
    idle = [connection for connection, _ in store._connections._idle]
    assert len(idle) > 1
    for connection in idle:
        ((number,),) = await connection.fetch("SELECT connection_id()", ())
        await asked(mysql.url, f"KILL {number}")
    while any(connection.usable for connection in idle):  # Until their end has arrived here.
        await asyncio.sleep(0)
    await put(store, lease, a_timer())
    assert await everything(store) == [a_timer()]


async def test_a_connection_lost_after_the_commit_leaves_the_write_done(
    mysql: MysqlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can know; so it is sent again, and changes nothing more."""
    async with Proxy(mysql.url + "?ssl-mode=disabled") as proxy:
        store = store_at(proxy.url)
        await store.open()
        lease = await claimed(store)
        change = batch(lease, puts=[a_timer()], finished=[finished(a_timer("done"))])
        connection, _ = store._connections._idle[-1]
        commit = connection.commit

        async def commit_unheard() -> None:
            proxy.swallows_answers = True
            await commit()

        monkeypatch.setattr(connection, "commit", commit_unheard)
        writing = asyncio.create_task(store.apply([change]))
        while not await asked(mysql.url, "SELECT 1 FROM history"):
            assert not writing.done()
        proxy.swallows_answers = False
        proxy.cut()
        with pytest.raises(StoreUnavailable):
            await writing
        assert await store.apply([change]) == frozenset()
        assert await everything(store) == [a_timer()]
        assert await store.purge("default", before=INSTANT_MAX, limit=10) == 1
        await store.close()


async def test_who_stands_still_within_a_transaction_does_not_hold_up_who_takes_over(
    mysql: MysqlDatabase, store: SqlStore
) -> None:
    lease = await claimed(store)
    held = mysql.hold(store)
    assert held is not None
    other = store_at(mysql.url)
    await other.open()
    with held as hold:
        standing = asyncio.create_task(store.apply([batch(lease, puts=[a_timer()])]))
        await hold.reached()
        async with asyncio.timeout(30):
            assert (await claimed(other, owner="other")).owner == "other"
        hold.release()
        with pytest.raises(StoreUnavailable):
            await standing
    assert await everything(other) == []
    await other.close()


async def test_a_deadlock_is_undone_and_done_again(mysql: MysqlDatabase, store: SqlStore) -> None:
    leases = await store.claim([0, 1], owner="node-a", at=NOW)

    async def in_the_way(connection: Any) -> None:
        async with connection.cursor() as cursor:
            await cursor.execute("SET autocommit = 1")
            await cursor.execute("START TRANSACTION")
            # The lighter of two is undone.
            rows = ", ".join(f"('heavy', '{n}', 1, '{{}}')" for n in range(500))
            await cursor.execute(f"INSERT INTO documents VALUES {rows}")
            await cursor.execute(f"SELECT shard_id {SHARD_ROW.format(1)}")
            puts = [a_timer("a", shard=0), a_timer("b", shard=1)]
            batches = [batch(lease, puts=[it]) for lease, it in zip(leases, puts, strict=True)]
            writing = asyncio.create_task(store.apply(batches))
            # Without waiting for the fence to have locked the first shard there is no deadlock,
            # and the write waits in peace.
            await _until_locked(mysql, shard=0)
            await cursor.execute(f"SELECT shard_id {SHARD_ROW.format(0)}")
            await cursor.execute("COMMIT")
            assert await writing == frozenset()

    await with_connection(mysql.url, in_the_way)
    assert [len(await everything(store, shard)) for shard in (0, 1)] == [1, 1]


async def _until_locked(mysql: MysqlDatabase, shard: int) -> None:
    async def look(connection: Any) -> None:
        async with connection.cursor() as cursor:
            await cursor.execute("SET autocommit = 1")
            while True:
                await cursor.execute("START TRANSACTION")
                try:
                    await cursor.execute(f"SELECT shard_id {SHARD_ROW.format(shard)} NOWAIT")
                except MySQLError:
                    return
                finally:
                    await cursor.execute("ROLLBACK")

    await with_connection(mysql.url, look)


async def test_a_server_set_to_be_read_only_says_so(mysql: MysqlDatabase, store: SqlStore) -> None:
    lease = await claimed(store)
    # Not for whoever may set it: so as somebody else.
    await asked(
        mysql.url,
        "CREATE USER writer IDENTIFIED BY 'hush'",
        "GRANT ALL ON test_mysql_failures.* TO writer",
        "SET GLOBAL read_only = 1",
    )
    writer = store_at(f"{_scheme(mysql)}://writer:hush@{mysql.url.partition('@')[2]}")
    try:
        await writer.open()
        with pytest.raises(StoreUnavailable, match=r"it can only be read.*\(1290\)"):
            await put(writer, lease, a_timer())
        await asked(mysql.url, "SET GLOBAL read_only = 0")
        await put(writer, lease, a_timer())
    finally:
        await asked(mysql.url, "SET GLOBAL read_only = 0", "DROP USER writer")
        await writer.close()


async def test_what_no_table_knows_is_an_error_without_the_value(store: SqlStore) -> None:
    lease = await claimed(store)
    with pytest.raises(StoreError) as caught:
        await put(store, lease, a_timer(callback_url="secret" * 1_000))
    assert not isinstance(caught.value, StoreUnavailable)
    assert "1406" in str(caught.value)
    assert "secret" not in str(caught.value)
    await put(store, lease, a_timer())


async def test_a_lock_that_is_not_to_be_had_ends_the_write(
    mysql: MysqlDatabase, store: SqlStore
) -> None:
    impatient = store_at(f"{mysql.url}?statement_timeout=1s")
    await impatient.open()
    lease = await claimed(impatient)

    async def keep(connection: Any) -> None:
        async with connection.cursor() as cursor:
            await cursor.execute("START TRANSACTION")
            await cursor.execute(f"SELECT shard_id {SHARD_ROW.format(0)}")
            with pytest.raises(StoreUnavailable, match=r"\((1205|1969|3024)\)"):
                await put(impatient, lease, a_timer())
            await cursor.execute("ROLLBACK")

    await with_connection(mysql.url, keep)
    assert await everything(store) == []
    await impatient.close()


def _scheme(mysql: MysqlDatabase) -> str:
    return mysql.url.partition(":")[0]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda url: url.replace("duetime:", "nobody:"), r"refuses this user or password \(1045\)"),
        (lambda url: url.replace("@", "x@"), r"refuses this user or password \(1045\)"),
        (lambda url: url.replace("/test_", "/no_"), r"there is no such database \(1049\)"),
        (lambda url: url.replace("127.0.0.1", "127.0.0.2"), "it cannot be reached"),
        (lambda url: url.replace("127.0.0.1", "no-such-host.invalid"), "it cannot be reached"),
    ],
)
async def test_why_it_cannot_be_opened_is_one_line_without_the_password(
    mysql: MysqlDatabase, change: Callable[[str], str], reason: str
) -> None:
    store = store_at(change(mysql.url))
    password = mysql.url.split(":")[2].split("@")[0]
    with pytest.raises(StoreUnavailable, match=reason) as caught:
        await store.open()
    assert password not in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_another_product_and_an_old_version_are_refused(
    mysql: MysqlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    for scheme in {"mysql", "mariadb", "tidb"} - {_scheme(mysql)}:
        with pytest.raises(StoreError, match=r"it is M.*, and the URL says") as caught:
            await store_at(scheme + mysql.url.removeprefix(_scheme(mysql))).open()
        assert "\n" not in str(caught.value)
    for name, product in (("MYSQL", MYSQL), ("MARIADB", MARIADB)):
        newer = structs.replace(product, version_min=(99, 0, 0))
        monkeypatch.setattr(mysql_module, name, newer)
    with pytest.raises(StoreError, match=r"M\w+ .* is too old: 99\.0\.0 is needed"):
        await store_at(mysql.url).open()


async def test_an_account_that_may_only_read_and_write_rows_is_enough_once_migrated(
    mysql: MysqlDatabase, store: SqlStore
) -> None:
    tables = ("timers", "history", "shards", "documents")
    await asked(
        mysql.url,
        "CREATE USER worker IDENTIFIED BY 'hush'",
        *[f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO worker" for table in tables],
        "GRANT SELECT ON duetime_schema TO worker",
    )
    worker = store_at(f"{_scheme(mysql)}://worker:hush@{mysql.url.partition('@')[2]}")
    try:
        await worker.open()
        lease = await claimed(worker)
        await put(worker, lease, a_timer())
        listing = await worker.select(ListQuery(namespace="default", num_shards=1, total=True))
        assert len(listing.entries) == 1
        await worker.close()
        await asked(mysql.url, "REVOKE SELECT ON history FROM worker")
        await worker.open()
        with pytest.raises(StoreUnavailable, match=r"this user lacks a right \(1142\)"):
            await worker.outcomes([key(a_timer())])
    finally:
        await worker.close()
        await asked(mysql.url, "DROP USER worker")


def test_of_nodes_that_start_together_each_finds_the_tables(mysql_server: Mariadb) -> None:
    database = new_database(mysql_server, "started_together")

    async def open_all() -> list[int]:
        stores = [store_at(database.url) for _ in range(6)]
        await asyncio.gather(*[store.open() for store in stores])
        claims = await asyncio.gather(*[claimed(store) for store in stores])
        await asyncio.gather(*[store.close() for store in stores])
        return sorted(lease.version for lease in claims)

    assert asyncio.run(open_all()) == [1, 2, 3, 4, 5, 6]


def test_a_migration_that_stopped_in_the_middle_is_finished_by_the_next_start(
    mysql_server: Mariadb, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = new_database(mysql_server, "stopped_in_the_middle")

    async def start() -> None:
        with monkeypatch.context() as patched:
            broken = (*schema.TABLES[:2], "CREATE NONSENSE", *schema.TABLES[2:])
            patched.setattr(schema, "MIGRATIONS", (broken,))
            with pytest.raises(StoreError, match="1064"):
                await store_at(database.url).open()
        store = store_at(database.url)
        await store.open()
        await put(store, await claimed(store), a_timer())
        await store.close()

    asyncio.run(start())


async def test_what_is_too_heavy_for_one_statement_is_one_transaction_still(
    mysql: MysqlDatabase, store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "WRITE_BYTES_MAX", 2_500)
    leases = await store.claim([0, 1], owner="node-a", at=NOW)
    await store.claim([1], owner="node-b", at=NOW)
    payload = b'"' + b"x" * 998 + b'"'
    heavy = [a_timer(f"t-{n}", at=NOW + n, payload=payload) for n in range(7)]
    ended = [finished(timer) for timer in heavy[5:]]
    lost = [a_timer(f"lost-{n}", shard=1, payload=payload) for n in range(7)]
    batches = [batch(leases[1], puts=lost), batch(leases[0], puts=heavy[:5], finished=ended)]
    assert await store.apply(batches) == {1}
    assert await everything(store) == heavy[:5]
    assert None not in await store.outcomes([key(timer) for timer in heavy[5:]])
    assert await everything(store, 1) == []
    async with mysql.raising(store, 1114, 1):  # The first of its rows.
        change = batch(leases[0], removes=heavy[:5], puts=[a_timer("new", payload=payload)])
        with pytest.raises(StoreUnavailable):
            await store.apply([change])
    assert await everything(store) == heavy[:5]


def test_no_statement_is_larger_than_the_server_takes(mysql: MysqlDatabase) -> None:
    quotes = b'["' + b'\\"' * 50_000 + b'"]'  # Four bytes each, when quoted once more.

    async def write() -> None:
        store = store_at(mysql.url)
        await store.open()
        lease = await claimed(store)
        timers = [a_timer(f"t-{n:02}", at=NOW + n, payload=quotes) for n in range(40)]
        await put(store, lease, *timers)
        assert await everything(store) == timers
        with pytest.raises(StoreError):
            await put(store, lease, a_timer("too heavy", payload=quotes * 20))
        await put(store, lease, a_timer("next"))
        await store.close()

    with global_setting(mysql, "max_allowed_packet", 1024 * 1024):
        asyncio.run(write())


async def test_ids_are_as_different_as_their_bytes(store: SqlStore) -> None:
    lease = await claimed(store)
    ids = ["a", "a ", "a  ", "a\0", "a\t", "A", "\u00e4", "a\u0308"]
    timers = sorted((a_timer(name) for name in ids), key=lambda timer: timer.cursor)
    await put(store, lease, *timers)
    assert await everything(store) == timers
    await store.apply([batch(lease, finished=[finished(timer) for timer in timers])])
    outcomes = await store.outcomes([key(timer) for timer in timers])
    assert [outcome and outcome.timer.id for outcome in outcomes] == [it.id for it in timers]


async def test_rows_are_as_an_operator_expects_them(mysql: MysqlDatabase, store: SqlStore) -> None:
    await put(store, await claimed(store, 7), a_timer(shard=7, payload=b'{"a": 1}', attempts=1))
    await store.apply([batch(await claimed(store, 7), finished=[finished(a_timer(shard=7))])])
    rows = await asked(
        mysql.url,
        "SELECT row_type, CAST(timer_execute_at AS CHAR), HEX(timer_uuid)"
        " FROM timers WHERE shard_id = 7 ORDER BY row_type",
    )
    assert [tuple(row) for row in rows] == [
        (1, "1970-01-01 00:00:01.000", "0" * 32),
        (2, "2027-01-15 08:00:00.000", a_timer().uuid.hex().upper()),
    ]
    ((at, status),) = await asked(
        mysql.url, "SELECT CAST(finished_at AS CHAR), finished_status FROM history"
    )
    assert (at, status) == ("2027-01-15 08:00:00.050", "completed")
