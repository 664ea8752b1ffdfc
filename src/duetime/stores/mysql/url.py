"""`DATABASE_URL` of a MySQL, a MariaDB or a TiDB:

    mysql://user:password@host:3306/database?ssl-mode=verify_identity&ssl-ca=/etc/ssl/db.pem

`mariadb://` and `tidb://` are written the same way. Behind `?` may stand `pool_size`,
`statement_timeout`, `ssl-mode` (as MySQL's own clients have it, `preferred` unless it is said),
`ssl-ca`, `ssl-cert` and `ssl-key`.
"""

import ssl
from urllib.parse import unquote

from msgspec import Struct

from duetime.stores.mysql.dialects import Product
from duetime.stores.sql.url import TLS_FILES, of_another_form, read, refused, tls_context

SSL_MODES = ("disabled", "preferred", "required", "verify_ca", "verify_identity")


class Address(Struct, frozen=True, kw_only=True):
    """What the URL says."""

    host: str
    port: int
    user: str | None
    password: bytes
    database: str
    name: str
    """For messages: host and database."""
    ssl_mode: str
    tls: ssl.SSLContext | None
    pool_size: int
    statement_timeout_ms: int


def parse(text: str, product: Product) -> Address:
    """`ConfigError` says what is wrong with it."""
    form = f"{product.dialect.name}://user:password@host:{product.port}/database"
    url = read(text, form=form, options=("ssl-mode", *TLS_FILES), files=TLS_FILES)
    if not url.hosts or "," in url.hosts or url.parts.hostname is None:
        raise of_another_form(form)
    mode = url.options.get("ssl-mode", "preferred")
    if mode not in SSL_MODES:
        raise refused(f"must have one of {', '.join(SSL_MODES)} as ssl-mode")
    user, password = url.parts.username, url.parts.password
    return Address(
        host=url.parts.hostname,
        port=url.parts.port or product.port,
        user=None if user is None else unquote(user),
        password=unquote(password or "").encode(),
        database=url.database,
        name=f"{url.hosts}/{url.database}",
        ssl_mode=mode,
        tls=None if mode == "disabled" else tls_context(mode, url.options),
        pool_size=url.pool_size,
        statement_timeout_ms=url.statement_timeout_ms,
    )
