"""TLS against real handshakes."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme

from duetime.delivery.guard import AddressGuard
from duetime.delivery.http import tls_context
from duetime.errors import ConfigError
from duetime.retry import Answer
from tests.delivery.asking import Asking
from tests.delivery.conftest import LOOPBACK
from tests.delivery.peers import OK, Connection, Peer, Script, answering_ok, serving


@asynccontextmanager
async def serving_tls(
    ca: trustme.CA, *names: str, script: Script = answering_ok, host: str = "127.0.0.1"
) -> AsyncIterator[Peer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert(*names).configure_cert(context)
    async with serving(script, host=host, ssl_context=context) as peer:
        yield peer


def asking_with(context: ssl.SSLContext) -> Asking:
    guard = AddressGuard(LOOPBACK, False, lookup=lambda _: ["127.0.0.1"])
    return Asking(guard, ssl_context=context)


async def test_a_private_ca_is_trusted_where_its_file_is_named(
    ca: trustme.CA, trusting: ssl.SSLContext
) -> None:
    async with serving_tls(ca, "hook.test") as peer, asking_with(trusting) as asking:
        url = peer.url(scheme="https", host="hook.test")
        assert [await asking.ask(url) for _ in range(3)] == [Answer(200, b"ok")] * 3
        assert peer.connections == 1


async def test_a_private_ca_stands_beside_the_systems_roots(trusting: ssl.SSLContext) -> None:
    assert trusting.cert_store_stats()["x509_ca"] >= (
        ssl.create_default_context().cert_store_stats()["x509_ca"] + 1
    )


async def test_an_unknown_ca_is_refused_by_name(ca: trustme.CA, asking: Asking) -> None:
    async with serving_tls(ca, "127.0.0.1") as peer:
        error = await asking.error(peer.url(scheme="https"))
        assert error.startswith("certificate verify failed: ")
        assert "issuer" in error or "self-signed" in error


async def test_another_hosts_certificate_is_refused_by_name(
    ca: trustme.CA, trusting: ssl.SSLContext
) -> None:
    async with serving_tls(ca, "other.test") as peer, asking_with(trusting) as asking:
        error = await asking.error(peer.url(scheme="https", host="hook.test"))
        assert error.startswith("certificate verify failed: ")
        assert "hook.test" in error


async def test_without_verification_any_certificate_will_do(ca: trustme.CA) -> None:
    context = tls_context(tls_verify=False, ca_file=None)
    async with serving_tls(ca, "other.test") as peer, asking_with(context) as asking:
        url = peer.url(scheme="https", host="hook.test")
        assert await asking.ask(url) == Answer(200, b"ok")


async def test_an_ipv6_address_can_have_a_certificate(
    ca: trustme.CA, trusting: ssl.SSLContext
) -> None:
    async with serving_tls(ca, "::1", host="::1") as peer, asking_with(trusting) as asking:
        url = peer.url(scheme="https", host="[::1]")
        assert await asking.ask(url) == Answer(200, b"ok")


async def test_a_names_final_dot_is_not_asked_of_its_certificate(
    ca: trustme.CA, trusting: ssl.SSLContext
) -> None:
    async with serving_tls(ca, "hook.test") as peer, asking_with(trusting) as asking:
        url = peer.url(scheme="https", host="hook.test.")
        assert await asking.ask(url) == Answer(200, b"ok")


async def test_a_server_without_tls_is_an_error_that_says_so(asking: Asking) -> None:
    async def script(connection: Connection) -> None:
        await connection.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await connection.until_closed()

    async with serving(script) as peer:
        error = await asking.error(peer.url(scheme="https"))
        assert error.startswith(f"TLS with 127.0.0.1:{peer.port} failed: ")


async def test_a_large_request_goes_through_tls(ca: trustme.CA, trusting: ssl.SSLContext) -> None:
    body = bytes(range(256)) * 8_192
    seen: list[bytes] = []

    async def script(connection: Connection) -> None:
        while True:
            seen.append((await connection.request()).body)
            await connection.send(OK)

    async with (
        serving_tls(ca, "hook.test", script=script) as peer,
        asking_with(trusting) as asking,
    ):
        url = peer.url(scheme="https", host="hook.test")
        for sent in (body, b"{}"):
            assert await asking.ask(url, sent) == Answer(200, b"ok")
        assert seen == [body, b"{}"]
        assert peer.connections == 1


async def test_a_reused_tls_connection_that_was_dropped_is_resent_once(
    ca: trustme.CA, trusting: ssl.SSLContext
) -> None:
    async def script(connection: Connection) -> None:
        await connection.request()
        await connection.send(OK)
        await connection.request()

    async with (
        serving_tls(ca, "hook.test", script=script) as peer,
        asking_with(trusting) as asking,
    ):
        url = peer.url(scheme="https", host="hook.test")
        for connections in (1, 2, 3):
            assert await asking.ask(url) == Answer(200, b"ok")
            assert peer.connections == connections


@pytest.mark.parametrize("content", [None, "no certificate"])
async def test_a_ca_file_that_is_no_good_is_refused_at_start(
    tmp_path: Path, content: str | None
) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match="CALLBACK_CA_FILE must be a file of PEM certificates"):
        tls_context(tls_verify=True, ca_file=str(path))
