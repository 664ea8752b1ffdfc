"""TLS to MySQL and MariaDB, asked for in the URL."""

import asyncio
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from scripts.servers import Mariadb
from scripts.servers.base import account, shared_folder

from duetime.errors import StoreUnavailable
from duetime.stores import store_from_url
from duetime.stores.sql.store import SqlStore

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def tls_server(mysql_server: Mariadb, authority: trustme.CA) -> Iterator[Mariadb]:
    """Another one, whose certificate is for 127.0.0.1."""
    folder = Path(tempfile.mkdtemp(prefix="test-tls-", dir=shared_folder()))
    certificate = authority.issue_cert("127.0.0.1")
    pem, key, ca = folder / "server.pem", folder / "server.key", folder / "ca.pem"
    certificate.cert_chain_pems[0].write_to_path(pem)
    certificate.private_key_pem.write_to_path(key)
    authority.cert_pem.write_to_path(ca)
    user = account("mysql")
    for path in (pem, key, ca):
        path.chmod(0o600)
        if user is not None:
            os.chown(path, user.pw_uid, user.pw_gid)
    settings = {"ssl-cert": str(pem), "ssl-key": str(key), "ssl-ca": str(ca)}
    server = type(mysql_server)(folder, settings)
    server.start()
    yield server
    server.delete()


def cipher(url: str) -> str:
    """That of the store's connection; empty where it is not encrypted."""

    async def ask() -> str:
        store = store_from_url(url)
        assert isinstance(store, SqlStore)
        store._connections.open()
        try:
            ((_, cipher),) = await store._connections.fetch("SHOW SESSION STATUS LIKE 'Ssl_cipher'")
        finally:
            await store.close()
        return str(cipher)

    return asyncio.run(ask())


def test_it_is_used_where_the_server_has_it(tls_server: Mariadb) -> None:
    assert cipher(tls_server.url)
    assert cipher(f"{tls_server.url}?ssl-mode=required")
    assert not cipher(f"{tls_server.url}?ssl-mode=disabled")


def test_a_server_without_it_is_used_as_it_is_unless_it_was_asked_for(
    mysql_server: Mariadb,
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="test-plain-", dir=shared_folder()))
    # MySQL makes certificates for itself; it cannot begin without knowing any protocol.
    settings = {"tls-version": ""} if mysql_server.name == "mysql" else {"ssl": "0"}
    server = type(mysql_server)(folder, settings)
    server.start()
    try:
        assert not cipher(server.url)
        with pytest.raises(StoreUnavailable) as caught:
            cipher(f"{server.url}?ssl-mode=required")
        assert "\n" not in str(caught.value)
    finally:
        server.delete()


@pytest.mark.parametrize("mode", ["verify_ca", "verify_identity"])
def test_a_certificate_of_the_named_authority_is_taken(
    tls_server: Mariadb, authority: trustme.CA, tmp_path: Path, mode: str
) -> None:
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    assert cipher(f"{tls_server.url}?ssl-mode={mode}&ssl-ca={tmp_path}/ca.pem")


@pytest.mark.parametrize("mode", ["verify_ca", "verify_identity"])
def test_a_certificate_of_another_authority_is_refused(
    tls_server: Mariadb, tmp_path: Path, mode: str
) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.pem")
    with pytest.raises(StoreUnavailable, match="TLS failed: ") as caught:
        cipher(f"{tls_server.url}?ssl-mode={mode}&ssl-ca={tmp_path}/ca.pem")
    assert "\n" not in str(caught.value)


def test_a_certificate_for_another_name_is_refused(
    tls_server: Mariadb, authority: trustme.CA, tmp_path: Path
) -> None:
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    url = tls_server.url.replace("127.0.0.1", "localhost")
    with pytest.raises(StoreUnavailable, match="TLS failed: "):
        cipher(f"{url}?ssl-mode=verify_identity&ssl-ca={tmp_path}/ca.pem")
    assert cipher(f"{url}?ssl-mode=verify_ca&ssl-ca={tmp_path}/ca.pem")
