"""TLS to PostgreSQL, asked for in the URL."""

import asyncio
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from scripts.servers import Server
from scripts.servers.base import account, shared_folder

from duetime.errors import StoreUnavailable
from duetime.stores.postgres import PostgresStore
from tests.servers import Servers

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def plain_server(servers: Servers) -> Server:
    """The packaged one: that of the wheel knows no TLS."""
    return servers.get("postgresql")


@pytest.fixture(scope="module")
def tls_server(plain_server: Server, authority: trustme.CA) -> Iterator[Server]:
    """Another one, whose certificate is for 127.0.0.1."""
    folder = Path(tempfile.mkdtemp(prefix="test-tls-", dir=shared_folder()))
    certificate = authority.issue_cert("127.0.0.1")
    pem, key = folder / "server.pem", folder / "server.key"
    certificate.cert_chain_pems[0].write_to_path(pem)
    certificate.private_key_pem.write_to_path(key)
    key.chmod(0o600)
    user = account("postgres")
    if user is not None:
        os.chown(key, user.pw_uid, user.pw_gid)
        os.chown(pem, user.pw_uid, user.pw_gid)
    settings = {"ssl": "on", "ssl_cert_file": str(pem), "ssl_key_file": str(key)}
    server = type(plain_server)(folder, settings)
    server.start()
    yield server
    server.delete()


def opened(url: str) -> bool:
    """Whether the connection was encrypted."""

    async def ask() -> bool:
        store = PostgresStore(url)
        await store.open()
        used = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
        answer = await store._connections.do(lambda connection: connection.fetchval(used))
        await store.close()
        return bool(answer)

    return asyncio.run(ask())


def test_it_is_used_where_the_server_has_it(tls_server: Server, plain_server: Server) -> None:
    assert opened(tls_server.url)
    assert not opened(plain_server.url)


@pytest.mark.parametrize("mode", ["require", "verify-ca", "verify-full"])
def test_a_certificate_of_the_named_authority_is_taken(
    tls_server: Server, authority: trustme.CA, tmp_path: Path, mode: str
) -> None:
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    assert opened(f"{tls_server.url}?sslmode={mode}&sslrootcert={tmp_path}/ca.pem")


def test_a_certificate_of_another_authority_is_refused(tls_server: Server, tmp_path: Path) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.pem")
    with pytest.raises(StoreUnavailable, match="TLS failed: ") as caught:
        opened(f"{tls_server.url}?sslmode=verify-full&sslrootcert={tmp_path}/ca.pem")
    assert "\n" not in str(caught.value)


def test_a_certificate_for_another_name_is_refused(
    tls_server: Server, authority: trustme.CA, tmp_path: Path
) -> None:
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    url = tls_server.url.replace("127.0.0.1", "localhost")
    with pytest.raises(StoreUnavailable, match="TLS failed: "):
        opened(f"{url}?sslmode=verify-full&sslrootcert={tmp_path}/ca.pem")


def test_a_file_without_a_certificate_is_refused(tls_server: Server, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    with pytest.raises(StoreUnavailable, match="TLS failed: "):
        opened(f"{tls_server.url}?sslmode=verify-full&sslrootcert={tmp_path}/ca.pem")


def test_without_any_authority_the_reason_is_said(
    tls_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(StoreUnavailable, match="root certificate") as caught:
        opened(f"{tls_server.url}?sslmode=verify-full")
    assert "\n" not in str(caught.value)
