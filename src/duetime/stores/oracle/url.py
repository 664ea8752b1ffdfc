"""`DATABASE_URL` of an Oracle."""

import ssl
from urllib.parse import unquote

from msgspec import Struct

from duetime.stores.sql.url import TLS_FILES, of_another_form, read, refused, tls_context

FORM = "oracle://user:password@host:1521/service"
PORT = 1521
SSL_MODES = ("disabled", "required", "verify_ca", "verify_identity")


class Address(Struct, frozen=True, kw_only=True):
    """What the URL says."""

    host: str
    port: int
    user: str
    password: str
    service: str
    name: str
    """For messages: host and service."""
    tls: ssl.SSLContext | None
    checks_identity: bool
    pool_size: int
    statement_timeout_ms: int


def parse(text: str) -> Address:
    """`ConfigError` says what is wrong with it."""
    url = read(text, form=FORM, options=("ssl-mode", *TLS_FILES), files=TLS_FILES)
    if "," in url.hosts or url.parts.hostname is None or not url.parts.username:
        raise of_another_form(FORM)
    mode = url.options.get("ssl-mode", "disabled")
    if mode not in SSL_MODES:
        raise refused(f"must have one of {', '.join(SSL_MODES)} as ssl-mode")
    return Address(
        host=url.parts.hostname,
        port=url.parts.port or PORT,
        user=unquote(url.parts.username),
        password=unquote(url.parts.password or ""),
        service=url.database,
        name=f"{url.hosts}/{url.database}",
        tls=None if mode == "disabled" else tls_context(mode, url.options),
        checks_identity=mode == "verify_identity",
        pool_size=url.pool_size,
        statement_timeout_ms=url.statement_timeout_ms,
    )
