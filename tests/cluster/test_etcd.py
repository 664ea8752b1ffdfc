"""Membership through a real etcd: what it hears, and what it does when etcd fails."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
import pytest
import trustme
from msgspec.structs import replace
from scripts.servers import Etcd

from duetime.cluster.etcd import EtcdMembership
from duetime.cluster.etcd import gateway as gateway_module
from duetime.cluster.membership import Member
from duetime.errors import StoreError, StoreUnavailable
from tests.cluster.meetings import CLOCK, member
from tests.etcds import etcd_of, own_etcd, three
from tests.servers import Servers
from tests.stores.proxy import Proxy

pytestmark = pytest.mark.server

WAIT_S_MAX = 30.0
SECRET = "p4ssw0rd"

Joined = Callable[..., "Joining"]


@pytest.fixture
def server(servers: Servers) -> Etcd:
    return etcd_of(servers)


class Joining:
    """A membership that has joined, and is closed at the end."""

    def __init__(self, url: str, me: Member, cluster: str = "c") -> None:
        self.membership = EtcdMembership(url, cluster=cluster, clock=CLOCK)
        self.me = me

    async def __aenter__(self) -> EtcdMembership:
        try:
            await self.membership.join(self.me)
            await self.membership.beat(self.me)
        except StoreError:
            await self.membership.close()
            raise
        return self.membership

    async def __aexit__(self, *_: object) -> None:
        await self.membership.close()


@pytest.fixture
def joined(server: Etcd, request: pytest.FixtureRequest) -> Joined:
    """Membership in a cluster of this test's own; by default of a node `a`."""

    def join(
        name: str = "a", boot: str = "0", *, options: str = "ttl=5s", founder: str = ""
    ) -> Joining:
        me = member(name, boot, founder=founder)
        return Joining(f"{server.url}/?{options}", me, cluster=request.node.name)

    return join


@asynccontextmanager
async def waiting(membership: EtcdMembership) -> AsyncIterator["asyncio.Task[None]"]:
    """For somebody to come or go."""
    task = asyncio.create_task(membership.changed())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def soon(task: "asyncio.Task[None]") -> None:
    async with asyncio.timeout(WAIT_S_MAX):
        await task


async def refusal(url: str) -> str:
    """Why a node cannot join."""
    with pytest.raises(StoreError) as caught:
        async with Joining(url, member("x")):
            pass
    return str(caught.value)


async def ask(server: Etcd, path: str, **message: object) -> dict[str, object]:
    """What another client of the same etcd does."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            f"http://127.0.0.1:{server.port}/v3/{path}", data=msgspec.json.encode(message)
        ) as response,
    ):
        assert response.status == 200, await response.text()
        answer: dict[str, object] = await response.json()
        return answer


# -- what is heard ---------------------------------------------------------------------------


async def test_who_comes_drains_and_leaves_is_heard_of(joined: Joined) -> None:
    async with joined() as a, waiting(a) as came, joined("b") as b:
        await soon(came)
        assert len(await a.beat(member("a"))) == 2
        async with waiting(a) as drained:
            await b.beat(member("b", draining=True))
            await soon(drained)
        await a.beat(member("a"))
        async with waiting(a) as left:
            await b.leave(member("b"))
            await soon(left)
        assert len(await a.beat(member("a"))) == 1


async def test_who_dies_is_heard_of_when_its_lease_runs_out(joined: Joined) -> None:
    async with joined() as a, joined("b", options="ttl=2s"):
        await a.beat(member("a"))
        async with waiting(a) as heard:
            await soon(heard)  # Nobody beats meanwhile.


async def test_who_only_claims_a_shard_or_has_more_to_do_wakes_nobody(joined: Joined) -> None:
    async with joined() as a, joined("b") as b:
        await a.beat(member("a"))
        async with waiting(a) as heard:
            await b.beat(member("b", moves=1, shards=3))
            await b.beat(member("b", moves=2, in_flight=9))
            await a.beat(member("a", moves=1))
            async with joined("c"):
                await soon(heard)  # All of this was heard before.
            members = {each.name: each for each in await a.beat(member("a"))}
            assert members["b"].moves == 2


async def test_what_happened_between_two_waits_is_heard_of(joined: Joined) -> None:
    async with joined() as a, joined("b"):
        async with waiting(a) as heard:
            await soon(heard)
        async with joined("c"), waiting(a) as heard_later:
            await soon(heard_later)


async def test_history_that_etcd_has_forgotten_counts_as_news(joined: Joined, server: Etcd) -> None:
    async with joined() as a, joined("b") as b:
        await a.beat(member("a"))
        for moves in range(5):
            await b.beat(member("b", moves=moves + 1))
        await ask(server, "kv/compaction", revision=b._revision)
        async with waiting(a) as heard:
            await soon(heard)
        await a.beat(member("a"))
        async with waiting(a) as heard, joined("c"):
            await soon(heard)


async def test_a_watch_that_hangs_is_begun_anew(
    joined: Joined, server: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_module, "WATCH_S_MAX", 0.3)
    async with (
        Proxy(f"{server.url}/?ttl=600s") as proxy,
        joined("b") as b,
        Joining(proxy.url, member("a"), cluster=b._cluster) as a,
        waiting(a) as heard,
    ):
        proxy.swallows_answers = True
        await b.leave(member("b"))
        await asyncio.sleep(0.1)
        assert not heard.done()
        proxy.swallows_answers = False
        await soon(heard)


async def test_a_watch_that_fails_is_begun_anew_and_said_once(
    joined: Joined, server: Etcd, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        Proxy(f"{server.url}/?ttl=2s") as proxy,
        joined("b") as b,
        Joining(proxy.url, member("a"), cluster=b._cluster) as a,
        waiting(a) as heard,
    ):
        proxy.refuses = True
        async with asyncio.timeout(WAIT_S_MAX):
            while "members not watched" not in caplog.text:
                proxy.cut()
                await asyncio.sleep(0.05)
        await asyncio.sleep(3 * a.interval_s)
        assert caplog.text.count("members not watched") <= 2  # Lost, then not reached.
        await b.leave(member("b"))
        proxy.refuses = False
        await soon(heard)


# -- what is written -------------------------------------------------------------------------


async def test_a_node_that_idles_writes_little(joined: Joined) -> None:
    async with joined() as a:
        before = a._revision
        for load in range(20):
            await a.beat(member("a", in_flight=load, backlog=load, skew_ms=load))
        assert a._revision - before <= 1


async def test_clusters_of_one_name_on_two_databases_do_not_meet(joined: Joined) -> None:
    async with joined("a", founder="x") as a, joined("a", founder="y", boot="1") as other:
        assert len(await a.beat(member("a", founder="x"))) == 1
        assert len(await other.beat(member("a", founder="y", boot="1"))) == 1


async def test_a_key_that_somebody_deleted_is_written_again(joined: Joined, server: Etcd) -> None:
    async with joined() as a, joined("b") as b:
        await ask(server, "kv/deleterange", key=a._key)
        assert len(await b.beat(member("b"))) == 1
        assert len(await a.beat(member("a"))) == 2
        assert len(await b.beat(member("b"))) == 2


async def test_a_lease_that_somebody_revoked_is_taken_anew(joined: Joined, server: Etcd) -> None:
    async with joined() as a, joined("b") as b:
        await ask(server, "lease/revoke", ID=a._lease)
        assert len(await a.beat(member("a"))) == 2
        assert len(await b.beat(member("b"))) == 2


async def test_what_is_no_node_under_our_keys_is_an_error(joined: Joined, server: Etcd) -> None:
    async with joined() as a:
        await ask(server, "kv/put", key=a._prefix + b"x", value=b"nonsense")
        with pytest.raises(StoreError, match="cannot be read"):
            await a.beat(member("a"))
        await ask(server, "kv/deleterange", key=a._prefix + b"x")
        await a.beat(member("a"))


async def test_leases_longer_than_asked_for_are_said(
    servers: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    with own_etcd(servers, election_timeout="3000") as slow:
        async with Joining(slow.url, member("a")) as a:
            assert a.trust_s < 2
        assert "etcd grants longer leases only" in caplog.text


# -- when etcd fails -------------------------------------------------------------------------


async def test_leases_outlive_a_restart_of_etcd(joined: Joined, server: Etcd) -> None:
    async with joined(options="ttl=30s") as a, joined("b", options="ttl=30s"):
        lease = a._lease
        server.stop(signal.SIGKILL)
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            await a.beat(member("a"))
        server.start()
        assert len(await beaten(a, member("a"))) == 2
        assert a._lease == lease


async def test_an_endpoint_that_is_gone_or_hangs_is_passed_over(
    joined: Joined, server: Etcd
) -> None:
    async with Proxy(f"{server.url}/") as hung, Proxy(f"{server.url}/") as gone:
        hosts = ",".join(url.split("/")[2] for url in (hung.url, gone.url, server.url))
        async with Joining(f"etcd://{hosts}/?ttl=4s", member("a")) as a:
            hung.swallows_answers = True
            gone.refuses = True
            asked_at = CLOCK.monotonic()
            assert await a.beat(member("a"))
            took_s = CLOCK.monotonic() - asked_at
            assert took_s < a.trust_s
            asked_at = CLOCK.monotonic()
            assert await a.beat(member("a"))
            assert CLOCK.monotonic() - asked_at < took_s  # It is remembered who answered.


async def beaten(membership: EtcdMembership, me: Member) -> list[Member]:
    """The first beat that is confirmed."""
    async with asyncio.timeout(WAIT_S_MAX):
        while True:
            try:
                return await membership.beat(me)
            except StoreUnavailable:
                await asyncio.sleep(0.05)


async def test_without_a_majority_nothing_is_confirmed_until_it_is_back(servers: Servers) -> None:
    with three(servers) as members:
        hosts = ",".join(each.url.removeprefix("etcd://") for each in members)
        async with Joining(f"etcd://{hosts}?ttl=6s", member("a")) as a:
            members[0].stop(signal.SIGKILL)
            assert await beaten(a, member("a"))
            members[1].stop(signal.SIGKILL)
            with pytest.raises(StoreUnavailable):
                await a.beat(member("a"))
            members[0].start()
            assert await beaten(a, member("a"))


async def test_who_is_no_etcd_is_named() -> None:
    async def answers_404(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nlost")
        await writer.drain()
        writer.close()

    other = await asyncio.start_server(answers_404, "127.0.0.1", 0)
    port = other.sockets[0].getsockname()[1]
    url = f"etcd://127.0.0.1:{port}"
    assert await refusal(url) == (f"etcd at 127.0.0.1:{port}: it answers 404: no etcd 3.4 or newer")
    other.close()
    await other.wait_closed()
    assert f"etcd at 127.0.0.1:{port}: it cannot be reached: " in await refusal(url)


# -- who may ask -----------------------------------------------------------------------------


async def test_user_and_password_are_needed_where_etcd_wants_them(servers: Servers) -> None:
    with own_etcd(servers) as server:
        await guard(server)
        at = f"127.0.0.1:{server.port}"
        assert "user name is empty" in await refusal(f"etcd://{at}")
        for stranger in ("root:wrong", f"nobody:{SECRET}"):
            reason = await refusal(f"etcd://{stranger}@{at}")
            assert reason.endswith("authentication failed, invalid user ID or password")
            assert SECRET not in reason


async def test_a_token_that_is_no_longer_known_is_asked_for_anew(servers: Servers) -> None:
    with own_etcd(servers) as server:
        await guard(server)
        url = f"etcd://root:{SECRET}@127.0.0.1:{server.port}/?ttl=10s"
        async with Joining(url, member("a")) as a:
            a._gateway._token = "forgotten"
            assert await a.beat(member("a"))
            async with waiting(a) as heard, Joining(url, member("b")):
                await soon(heard)
            server.stop()
            with pytest.raises(StoreUnavailable) as caught:
                await a.beat(member("a"))
            assert SECRET not in str(caught.value)
            server.start()  # It has forgotten all tokens.
            assert await beaten(a, replace(member("a"), moves=1))


async def guard(server: Etcd) -> None:
    """From now on it wants a password."""
    await ask(server, "auth/user/add", name="root", password=SECRET)
    await ask(server, "auth/role/add", name="root")
    await ask(server, "auth/user/grant", user="root", role="root")
    await ask(server, "auth/enable")


async def test_tls_is_used_and_checked(servers: Servers, tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    pem, key, ca = tmp_path / "server.pem", tmp_path / "server.key", tmp_path / "ca.pem"
    certificate.cert_chain_pems[0].write_to_path(pem)
    certificate.private_key_pem.write_to_path(key)
    authority.cert_pem.write_to_path(ca)
    with own_etcd(servers, cert_file=str(pem), key_file=str(key)) as server:
        async with Joining(f"{server.url}?sslrootcert={ca}&ttl=9s", member("a")) as a:
            assert await a.beat(member("a"))
        assert "its certificate is not trusted" in await refusal(server.url)
        assert "the connection was lost" in await refusal(server.url.replace("etcds", "etcd"))
