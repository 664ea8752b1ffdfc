"""What a PostgreSQL can do to us: it stops, restarts, refuses, is slow, or is somebody else's."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import pytest_asyncio
from scripts.servers import Postgresql

from duetime.errors import SchemaTooNew, StoreError, StoreUnavailable
from duetime.model import CURSOR_MIN, INSTANT_MAX
from duetime.store import DueRead, ListQuery
from duetime.stores.postgres import PostgresStore, connections, schema
from duetime.stores.postgres import store as store_module
from duetime.stores.postgres.errors import is_conflict, spoils_connections, translated
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
from tests.stores.postgres_database import HOLDING_NO_MORE, PostgresDatabase, asked, new_database
from tests.stores.proxy import Proxy

pytestmark = pytest.mark.server

RAISES = """
    CREATE SEQUENCE raised;
    CREATE FUNCTION raises() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF nextval('raised') <= {times} THEN
            RAISE EXCEPTION 'as the test asked' USING ERRCODE = '{code}';
        END IF;
        RETURN NEW;
    END $$;
    CREATE TRIGGER raises BEFORE INSERT ON timers
    FOR EACH ROW WHEN (NEW.row_type = 2) EXECUTE FUNCTION raises();
"""
RAISES_NO_MORE = "DROP TRIGGER raises ON timers; DROP FUNCTION raises; DROP SEQUENCE raised"


@pytest_asyncio.fixture
async def store(postgres: PostgresDatabase) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres.url)
    await store.open()
    yield store
    await store.close()


async def _ask(postgres: PostgresDatabase, statement: str) -> Any:
    return await asked(postgres.url, lambda connection: connection.fetch(statement))


class _Raising:
    """The next rows to be put meet an error of that code, so many times."""

    def __init__(self, postgres: PostgresDatabase, code: str, times: int) -> None:
        self._postgres = postgres
        self._statement = RAISES.format(code=code, times=times)

    async def __aenter__(self) -> None:
        await asked(self._postgres.url, lambda it: it.execute(self._statement))

    async def __aexit__(self, *_: object) -> None:
        await asked(self._postgres.url, lambda it: it.execute(RAISES_NO_MORE))


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])  # A shutdown, and a crash.
async def test_a_restart_is_an_outage_that_ends_by_itself(
    postgres_server: Postgresql, store: PostgresStore, how: signal.Signals
) -> None:
    lease = await claimed(store)
    await put(store, lease, a_timer("before"))
    postgres_server.stop(how)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:\d+/test_postgres_failures: "):
            await put(store, lease, a_timer("meanwhile"))
    postgres_server.start()
    await put(store, lease, a_timer("after"))
    assert {timer.id for timer in await everything(store)} == {"before", "after"}


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
async def test_what_is_under_way_when_it_stops_is_unknown_and_can_be_sent_again(
    postgres_server: Postgresql,
    postgres: PostgresDatabase,
    store: PostgresStore,
    how: signal.Signals,
) -> None:
    lease = await claimed(store)
    change = batch(lease, puts=[a_timer()], finished=[finished(a_timer("done"))])
    held = postgres.hold(store)
    assert held is not None
    with held as hold:
        writing = asyncio.create_task(store.apply([change]))
        await hold.reached()
        await asyncio.to_thread(postgres_server.stop, how)
        with pytest.raises(StoreUnavailable):
            await writing
    postgres_server.start()
    await asked(postgres.url, lambda it: it.execute(HOLDING_NO_MORE))
    assert await store.apply([change]) == frozenset()
    assert await everything(store) == [a_timer()]


async def test_idle_connections_that_were_closed_are_replaced_unnoticed(
    postgres: PostgresDatabase, store: PostgresStore
) -> None:
    lease = await claimed(store)
    await asyncio.gather(*[store.now() for _ in range(5)])
    ended = await _ask(
        postgres,
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE application_name = 'duetime'",
    )
    assert ended
    while store._connections._pool.get_idle_size():  # Until their end has arrived here.
        await asyncio.sleep(0)
    await put(store, lease, a_timer())
    assert await everything(store) == [a_timer()]


async def test_a_connection_lost_after_the_commit_leaves_the_write_done(
    postgres: PostgresDatabase,
) -> None:
    """Nobody can know; so it is sent again, and changes nothing more."""
    async with Proxy(postgres.url) as proxy:
        store = PostgresStore(proxy.url)
        await store.open()
        lease = await claimed(store)
        warm = batch(lease, puts=[a_timer("warm")], finished=[finished(a_timer("warm"))])
        await store.apply([warm])  # To prepare a statement takes an answer.
        proxy.swallows_answers = True
        change = batch(lease, puts=[a_timer()], finished=[finished(a_timer("done"))])
        writing = asyncio.create_task(store.apply([change]))
        while len(await _ask(postgres, "SELECT FROM history")) < 2:
            assert not writing.done()
        proxy.swallows_answers = False
        proxy.cut()
        with pytest.raises(StoreUnavailable):
            await writing
        assert await store.apply([change]) == frozenset()
        assert {timer.id for timer in await everything(store)} == {"warm", "a"}
        assert await store.purge("default", before=INSTANT_MAX, limit=10) == 2
        await store.close()


async def test_a_connection_lost_before_the_statement_leaves_the_store_usable(
    postgres: PostgresDatabase,
) -> None:
    async with Proxy(postgres.url) as proxy:
        store = PostgresStore(proxy.url)
        await store.open()
        lease = await claimed(store)
        proxy.cut()
        with suppress(StoreUnavailable):  # Unless the end of the connection came first.
            await put(store, lease, a_timer("meanwhile"))
        await put(store, lease, a_timer("after"))
        assert "after" in [timer.id for timer in await everything(store)]
        await store.close()


async def test_who_stands_still_within_a_transaction_does_not_hold_up_who_takes_over(
    postgres: PostgresDatabase, store: PostgresStore
) -> None:
    await claimed(store)
    holds, goes_on = asyncio.Event(), asyncio.Event()

    async def stand_still(connection: Any) -> None:
        async with connection.transaction():
            await connection.execute("SELECT FROM timers WHERE row_type = 1 FOR SHARE")
            holds.set()
            await goes_on.wait()

    standing = asyncio.create_task(store._connections.do(stand_still))
    await holds.wait()
    other = PostgresStore(postgres.url)
    await other.open()
    async with asyncio.timeout(10):
        (lease,) = await other.claim([0], owner="other", at=NOW)
    assert lease.owner == "other"
    goes_on.set()
    with pytest.raises(StoreUnavailable):
        await standing
    await other.close()


async def test_a_server_that_answers_no_more_is_given_up_on(
    postgres_server: Postgresql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "ANSWER_GRACE_S", -0.5)
    monkeypatch.setattr(connections, "CONNECT_TIMEOUT_S", 0.5)
    store = PostgresStore(
        postgres_server.url_of("test_postgres_failures") + "?statement_timeout=1s"
    )
    await store.open()
    await store.now()
    server = postgres_server.pid
    assert server is not None
    children = Path(f"/proc/{server}/task/{server}/children").read_text()
    frozen = [server, *map(int, children.split())]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    try:
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="it did not answer in time"):
                await store.now()
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
    assert await store.now() > 0
    await store.close()


@pytest.mark.parametrize("code", ["40001", "40P01"])
async def test_a_write_that_others_were_in_the_way_of_is_tried_again(
    postgres: PostgresDatabase, store: PostgresStore, code: str
) -> None:
    lease = await claimed(store)
    async with _Raising(postgres, code, connections.TRIES - 1):
        await put(store, lease, a_timer())
    assert await everything(store) == [a_timer()]


async def test_it_is_not_tried_for_ever(postgres: PostgresDatabase, store: PostgresStore) -> None:
    lease = await claimed(store)
    async with _Raising(postgres, "40P01", connections.TRIES):
        with pytest.raises(StoreUnavailable, match=r"other writes were in its way \(40P01\)"):
            await put(store, lease, a_timer())
    assert await everything(store) == []


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("53100", "its disk is full"),
        ("53200", "it has no memory left"),
        ("53400", "it has run out of something"),
        ("55P03", "a lock was not to be had in time"),
        ("57014", "a statement took longer than statement_timeout"),
        ("57P01", "it is shutting down"),
        ("58030", "reading or writing its files failed"),
        ("25006", "it can only be read"),
        ("42501", "this user lacks a right"),
    ],
)
async def test_an_outage_is_named_and_undoes_the_write(
    postgres: PostgresDatabase, store: PostgresStore, code: str, reason: str
) -> None:
    lease = await claimed(store)
    async with _Raising(postgres, code, 1):
        with pytest.raises(StoreUnavailable, match=rf"failures: {reason}.*\({code}\)") as caught:
            await put(store, lease, a_timer())
        assert isinstance(caught.value.__cause__, asyncpg.PostgresError)
        await put(store, lease, a_timer("next"))
    assert await everything(store) == [a_timer("next")]


async def test_what_no_table_knows_is_an_error_without_the_value(store: PostgresStore) -> None:
    lease = await claimed(store)
    with pytest.raises(StoreError) as caught:
        await put(store, lease, a_timer(payload=b'"secret\0"'))
    assert not isinstance(caught.value, StoreUnavailable)
    assert "22021" in str(caught.value)
    assert "secret" not in str(caught.value)


async def test_a_statement_that_takes_too_long_is_ended(
    postgres: PostgresDatabase, store: PostgresStore
) -> None:
    impatient = PostgresStore(f"{postgres.url}?statement_timeout=1s")
    await impatient.open()
    lease = await claimed(impatient)
    held = postgres.hold(store)
    assert held is not None
    with held, pytest.raises(StoreUnavailable, match=r"than statement_timeout \(57014\)"):
        await put(impatient, lease, a_timer())
    assert await everything(store) == []
    await impatient.close()


async def test_lists_that_take_long_leave_connections_for_what_timers_wait_for(
    postgres: PostgresDatabase,
) -> None:
    store = PostgresStore(f"{postgres.url}?pool_size=4")
    await store.open()
    lease = await claimed(store)

    async def hold_up(connection: Any) -> None:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("LOCK TABLE history")
        query = ListQuery(namespace="default", num_shards=1)
        lists = [asyncio.create_task(store.select(query)) for _ in range(20)]
        await put(store, lease, a_timer())
        assert await everything(store) == [a_timer()]
        assert not any(task.done() for task in lists)
        await transaction.rollback()
        assert [len(listing.entries) for listing in await asyncio.gather(*lists)] == [1] * 20

    await asked(postgres.url, hold_up)
    await store.close()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda url: url.replace("duetime:", "nobody:"), r"it refuses this user or password \(28"),
        (lambda url: url.replace("@", "x@"), r"it refuses this user or password \(28P01\)"),
        (lambda url: url.replace("/test_", "/no_"), r"there is no such database \(3D000\)"),
        (lambda url: url.replace("127.0.0.1", "127.0.0.1:1,127.0.0.2"), "it cannot be reached"),
        (lambda url: url + "?sslmode=require", "it cannot be reached|TLS|rejected SSL"),
    ],
)
async def test_why_it_cannot_be_opened_is_one_line_without_the_password(
    postgres: PostgresDatabase, change: Callable[[str], str], reason: str
) -> None:
    store = PostgresStore(change(postgres.url))
    password = postgres.url.split(":")[2].split("@")[0]
    with pytest.raises(StoreUnavailable, match=reason) as caught:
        await store.open()
    assert password not in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_newer_schema_is_refused_and_left_alone(postgres: PostgresDatabase) -> None:
    await asked(postgres.url, lambda it: it.execute("UPDATE duetime_schema SET version = 99"))
    with pytest.raises(SchemaTooNew) as caught:
        await PostgresStore(postgres.url).open()
    assert (caught.value.found, caught.value.known) == (99, len(schema.MIGRATIONS))
    await asked(postgres.url, lambda it: it.execute("UPDATE duetime_schema SET version = 1"))


async def test_an_old_server_and_another_encoding_are_refused(
    postgres: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(connections, "VERSION_MIN", 99)
        with pytest.raises(StoreError, match=r"PostgreSQL 1\d\.\d+ is too old: 99 is needed"):
            await PostgresStore(postgres.url).open()
    await asked(
        postgres.url,
        lambda it: it.execute(
            "CREATE DATABASE latin1 TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'"
        ),
    )
    with pytest.raises(StoreError, match="its encoding is LATIN1: UTF8 is needed"):
        await PostgresStore(postgres.url.replace("/test_postgres_failures", "/latin1")).open()
    await asked(postgres.url, lambda it: it.execute("DROP DATABASE latin1"))


async def test_a_role_that_may_only_read_and_write_rows_is_enough_once_migrated(
    postgres: PostgresDatabase, store: PostgresStore
) -> None:
    await asked(
        postgres.url,
        lambda it: it.execute(
            "CREATE ROLE worker LOGIN PASSWORD 'hush';"
            "GRANT SELECT, INSERT, UPDATE, DELETE ON timers, history, documents TO worker;"
            "GRANT SELECT ON duetime_schema TO worker"
        ),
    )
    host = postgres.url.partition("@")[2]
    worker = PostgresStore(f"postgresql://worker:hush@{host}")
    await worker.open()
    lease = await claimed(worker)
    await put(worker, lease, a_timer())
    assert len((await worker.select(ListQuery(namespace="default", num_shards=1))).entries) == 1
    await worker.close()
    await asked(postgres.url, lambda it: it.execute("REVOKE SELECT ON history FROM worker"))
    await worker.open()
    with pytest.raises(StoreUnavailable, match=r"this user lacks a right \(42501\)"):
        await worker.outcomes([key(a_timer())])
    await worker.close()
    await asked(postgres.url, lambda it: it.execute("DROP OWNED BY worker; DROP ROLE worker"))


def test_of_nodes_that_start_together_one_migrates(postgres_server: Postgresql) -> None:
    database = new_database(postgres_server, "started_together")

    async def open_all() -> list[int]:
        stores = [PostgresStore(database.url) for _ in range(6)]
        await asyncio.gather(*[store.open() for store in stores])
        claims = await asyncio.gather(*[claimed(store) for store in stores])
        await asyncio.gather(*[store.close() for store in stores])
        return sorted(lease.version for lease in claims)

    assert asyncio.run(open_all()) == [1, 2, 3, 4, 5, 6]


async def test_a_migration_that_fails_leaves_the_schema_as_it_was(
    postgres: PostgresDatabase, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = (*schema.MIGRATIONS, ("CREATE TABLE added (name text)", "CREATE NONSENSE"))
    with monkeypatch.context() as patched:
        patched.setattr(schema, "MIGRATIONS", broken)
        with pytest.raises(StoreError, match="syntax error"):
            await PostgresStore(postgres.url).open()
    assert await _ask(postgres, "SELECT FROM pg_class WHERE relname = 'added'") == []
    again = PostgresStore(postgres.url)
    await again.open()
    await again.close()


async def test_what_is_too_heavy_for_one_statement_is_one_transaction_still(
    postgres: PostgresDatabase, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
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
    (writes,) = await _ask(
        postgres, "SELECT count(DISTINCT xmin::text) FROM timers WHERE row_type = 2"
    )
    assert writes[0] == 1
    change = batch(leases[0], removes=heavy[:5], puts=[a_timer("new", payload=payload)])
    assert await store.apply([change]) == frozenset()
    assert [timer.id for timer in await everything(store)] == ["new"]


async def test_pages_of_heavy_timers_are_cut_short(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "DUE_BYTES_MAX", 20_000)
    leases = await store.claim([0, 1], owner="node-a", at=NOW)
    payload = b'"' + b"x" * 998 + b'"'
    for lease in leases:
        timers = [
            a_timer(f"t-{n}", shard=lease.shard, at=NOW + n, payload=payload) for n in range(30)
        ]
        await put(store, lease, *timers)
    pages = await store.due([DueRead(shard, CURSOR_MIN, INSTANT_MAX, 100) for shard in (0, 1)])
    assert [(len(page.timers), page.more) for page in pages] == [(10, True), (10, True)]
    assert [timer.id for timer in pages[1].timers] == [f"t-{n}" for n in range(10)]


async def test_rows_are_as_an_operator_expects_them(
    postgres: PostgresDatabase, store: PostgresStore
) -> None:
    await put(store, await claimed(store, 7), a_timer(shard=7, payload=b'{"a": 1}', attempts=1))
    await store.apply([batch(await claimed(store, 7), finished=[finished(a_timer(shard=7))])])
    rows = await _ask(
        postgres,
        "SELECT row_type, timer_execute_at::text, replace(timer_uuid::text, '-', '') AS uuid"
        " FROM timers WHERE shard_id = 7 ORDER BY row_type",
    )
    assert [tuple(row) for row in rows] == [
        (1, "01/01/1970 00:00:01", "0" * 32),
        (2, "15/01/2027 08:00:00", a_timer().uuid.hex()),
    ]
    (row,) = await _ask(postgres, "SELECT finished_at::text, finished_status FROM history")
    assert tuple(row) == ("15/01/2027 08:00:00.05", "completed")


@pytest.mark.parametrize(
    ("error", "type_", "reason"),
    [
        (asyncpg.ConnectionDoesNotExistError("gone"), StoreUnavailable, "the connection was lost"),
        (asyncpg.InterfaceError("pool is closing"), StoreUnavailable, "pool is closing"),
        (ConnectionRefusedError(111, "Connection refused"), StoreUnavailable, "refused"),
        (TimeoutError(), StoreUnavailable, "it did not answer in time"),
        (asyncpg.DataCorruptedError("page"), StoreUnavailable, "its files are damaged"),
        (asyncpg.UndefinedTableError("no timers"), StoreError, "no timers"),
    ],
)
def test_an_error_of_the_driver_becomes_the_stores(
    error: Exception, type_: type[StoreError], reason: str
) -> None:
    mine = translated(error, "db.example/timers")
    assert type(mine) is type_
    assert str(mine).startswith("db.example/timers: ")
    assert reason in str(mine)


def test_conflicts_and_outages_are_told_apart() -> None:
    assert is_conflict(asyncpg.DeadlockDetectedError("x"))
    assert not is_conflict(asyncpg.AdminShutdownError("x"))
    assert spoils_connections(asyncpg.AdminShutdownError("x"))
    assert spoils_connections(asyncpg.ReadOnlySQLTransactionError("x"))
    assert spoils_connections(ConnectionResetError())
    assert not spoils_connections(asyncpg.DiskFullError("x"))
