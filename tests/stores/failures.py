"""What every store on a server of its own lives through: the server stops, restarts, freezes, is
lost on the way, is busy, and is in the way of itself."""

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from types import ModuleType
from typing import Protocol

import pytest
from scripts.servers import Server

from duetime.errors import SchemaTooNew, StoreUnavailable
from duetime.model import CURSOR_MIN, INSTANT_MAX
from duetime.store import DueRead, ListQuery, Store
from duetime.stores import store_from_url
from duetime.testing.conformance import Database
from duetime.testing.conformance.timers import (
    NOW,
    a_timer,
    batch,
    claimed,
    everything,
    finished,
    put,
)
from tests.stores.proxy import Proxy

WAIT_S = 10


class ServerDatabase(Database, Protocol):
    """One on a server that can be stopped."""

    @property
    def url(self) -> str: ...

    async def tell(self, *statements: str) -> None:
        """Run the statements."""

    async def tidy(self) -> None:
        """Clear away what a `hold` left behind that met a crash."""

    def raising(
        self, store: Store, code: int | str, times: int
    ) -> AbstractAsyncContextManager[None]:
        """Let the server meet the next changes of timers with this error, so many times."""

    def history_locked(self) -> AbstractAsyncContextManager[None]:
        """Let whatever reads history wait."""


class ServerFailures:
    """A store's test file says where the store's bounds stand, and supplies the fixtures `server`,
    `database`, `store` (open), `how` (a signal that ends the server), `conflict` (a code of the
    server's) and `outage` (another, and its reason)."""

    bounds: ModuleType
    pool_bounds: ModuleType

    async def test_a_restart_is_an_outage_that_ends_by_itself(
        self, server: Server, store: Store, how: signal.Signals
    ) -> None:
        lease = await claimed(store)
        await put(store, lease, a_timer("before"))
        await asyncio.to_thread(server.stop, how)
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:\d+/test_\w+_failures: "):
                await put(store, lease, a_timer("meanwhile"))
        await asyncio.to_thread(server.start)
        await put(store, lease, a_timer("after"))
        assert {timer.id for timer in await everything(store)} == {"before", "after"}

    async def test_what_is_under_way_when_it_stops_is_unknown_and_can_be_sent_again(
        self, server: Server, database: ServerDatabase, store: Store, how: signal.Signals
    ) -> None:
        lease = await claimed(store)
        change = batch(lease, puts=[a_timer()], finished=[finished(a_timer("done"))])
        held = database.hold(store)
        assert held is not None
        with held as hold:
            writing = asyncio.create_task(store.apply([change]))
            await hold.reached()
            await asyncio.to_thread(server.stop, how)
            hold.release()
            with pytest.raises(StoreUnavailable):
                await writing
        await asyncio.to_thread(server.start)
        await database.tidy()
        assert await store.apply([change]) == frozenset()
        assert await everything(store) == [a_timer()]

    async def test_a_connection_lost_before_the_statement_leaves_the_store_usable(
        self, database: ServerDatabase
    ) -> None:
        async with Proxy(database.url) as proxy:
            store = store_from_url(proxy.url)
            await store.open()
            lease = await claimed(store)
            proxy.cut()
            with suppress(StoreUnavailable):  # Unless the end of the connection came first.
                await put(store, lease, a_timer("meanwhile"))
            await put(store, lease, a_timer("after"))
            assert "after" in [timer.id for timer in await everything(store)]
            await store.close()

    async def test_a_server_that_answers_no_more_is_given_up_on(
        self, server: Server, database: ServerDatabase, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(self.pool_bounds, "ANSWER_GRACE_S", -0.5)
        monkeypatch.setattr(self.pool_bounds, "CONNECT_TIMEOUT_S", 0.5)
        store = store_from_url(database.url + "?statement_timeout=1s")
        await store.open()
        await store.now()
        frozen = _processes(server)
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        async with asyncio.timeout(WAIT_S):
            while not all(map(_is_stopped, frozen)):
                await asyncio.sleep(0.001)
        try:
            for _ in range(2):
                with pytest.raises(StoreUnavailable, match="it did not answer in time"):
                    await store.now()
        finally:
            for pid in frozen:
                os.kill(pid, signal.SIGCONT)
        monkeypatch.undo()
        assert await store.now() > 0
        await store.close()

    async def test_a_write_that_others_were_in_the_way_of_is_tried_again(
        self, database: ServerDatabase, store: Store, conflict: int | str
    ) -> None:
        lease = await claimed(store)
        async with database.raising(store, conflict, self.pool_bounds.TRIES - 1):
            await put(store, lease, a_timer())
        assert await everything(store) == [a_timer()]

    async def test_it_is_not_tried_for_ever(
        self, database: ServerDatabase, store: Store, conflict: int | str
    ) -> None:
        lease = await claimed(store)
        reason = rf"other writes were in its way \({conflict}\)"
        async with database.raising(store, conflict, self.pool_bounds.TRIES):
            with pytest.raises(StoreUnavailable, match=reason):
                await put(store, lease, a_timer())
        assert await everything(store) == []

    async def test_an_outage_is_named_and_undoes_the_write(
        self, database: ServerDatabase, store: Store, outage: tuple[int | str, str]
    ) -> None:
        code, reason = outage
        lease = await claimed(store)
        async with database.raising(store, code, 1):
            with pytest.raises(StoreUnavailable, match=rf"failures: {reason}.*\({code}\)"):
                await put(store, lease, a_timer())
            await put(store, lease, a_timer("next"))
        assert await everything(store) == [a_timer("next")]

    async def test_lists_that_take_long_leave_connections_for_what_timers_wait_for(
        self, database: ServerDatabase
    ) -> None:
        store = store_from_url(f"{database.url}?pool_size=4")
        await store.open()
        lease = await claimed(store)
        async with database.history_locked():
            query = ListQuery(namespace="default", num_shards=1)
            lists = [asyncio.create_task(store.select(query)) for _ in range(20)]
            await put(store, lease, a_timer())
            assert await everything(store) == [a_timer()]
            assert not any(task.done() for task in lists)
        assert [len(listing.entries) for listing in await asyncio.gather(*lists)] == [1] * 20
        await store.close()

    async def test_a_newer_schema_is_refused_and_left_alone(
        self, database: ServerDatabase, store: Store
    ) -> None:
        await database.tell("UPDATE duetime_schema SET version = 99")
        with pytest.raises(SchemaTooNew) as caught:
            await store_from_url(database.url).open()
        assert (caught.value.found, caught.value.known) == (99, 1)
        await database.tell("UPDATE duetime_schema SET version = 1")

    async def test_pages_of_heavy_timers_are_cut_short(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(self.bounds, "DUE_BYTES_MAX", 20_000)
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


def _is_stopped(pid: int) -> bool:
    """All of its threads."""
    states = (task.read_text() for task in Path(f"/proc/{pid}/task").glob("*/stat"))
    return all(state.rpartition(")")[2].split()[0] == "T" for state in states)


def _processes(server: Server) -> Sequence[int]:
    """Its own, and those that it started."""
    pid = server.pid
    assert pid is not None
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [pid, *map(int, children.split())]
