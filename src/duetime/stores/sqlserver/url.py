"""`DATABASE_URL` of a SQL Server."""

from urllib.parse import unquote

from msgspec import Struct

from duetime.stores.sql.url import of_another_form, read, refused

FORM = "sqlserver://user:password@host:1433/database"
PORT = 1433
SSL_MODES = {
    "disabled": ("no", "no"),
    "required": ("yes", "yes"),
    "verify_identity": ("yes", "no"),
}
"""What the driver calls Encrypt and TrustServerCertificate. Whom to trust the system says."""


class Address(Struct, frozen=True, kw_only=True):
    """What the URL says."""

    host: str
    port: int
    user: str
    password: str
    database: str
    name: str
    """For messages: host and database."""
    ssl_mode: str
    pool_size: int
    statement_timeout_ms: int

    def odbc(self, driver: str) -> str:
        """The driver's own form of it."""
        encrypt, trust = SSL_MODES[self.ssl_mode]
        parts = {
            "DRIVER": driver,
            "SERVER": f"tcp:{self.host},{self.port}",
            "DATABASE": self.database,
            "UID": self.user,
            "PWD": self.password,
            "Encrypt": encrypt,
            "TrustServerCertificate": trust,
            "APP": "duetime",
            "ConnectRetryCount": "0",  # Mended in silence, a session would lack its settings.
        }
        return "".join(f"{name}={_braced(value)};" for name, value in parts.items())


def parse(text: str) -> Address:
    """`ConfigError` says what is wrong with it."""
    url = read(text, form=FORM, options=("ssl-mode",), files=())
    if "," in url.hosts or url.parts.hostname is None or not url.parts.username:
        raise of_another_form(FORM)
    mode = url.options.get("ssl-mode", "verify_identity")
    if mode not in SSL_MODES:
        raise refused(f"must have one of {', '.join(SSL_MODES)} as ssl-mode")
    return Address(
        host=url.parts.hostname,
        port=url.parts.port or PORT,
        user=unquote(url.parts.username),
        password=unquote(url.parts.password or ""),
        database=url.database,
        name=f"{url.hosts}/{url.database}",
        ssl_mode=mode,
        pool_size=url.pool_size,
        statement_timeout_ms=url.statement_timeout_ms,
    )


def _braced(value: str) -> str:
    return "{" + value.replace("}", "}}") + "}"
