"""`DATABASE_URL` of a PostgreSQL."""

from urllib.parse import urlencode

from msgspec import Struct

from duetime.stores.sql.url import of_another_form, read, refused

FORM = "postgresql://user:password@host:5432/database"
SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_FILES = ("sslrootcert", "sslcert", "sslkey")
OPTIONS = ("sslmode", *_FILES, "host")


class Address(Struct, frozen=True, kw_only=True):
    """What the URL says."""

    dsn: str
    """For the driver: the URL without the options that are ours."""
    name: str
    """For messages: hosts and database."""
    several_hosts: bool
    pool_size: int
    statement_timeout_ms: int


def parse(text: str) -> Address:
    """`ConfigError` says what is wrong with it."""
    url = read(text, form=FORM, options=OPTIONS, files=_FILES)
    if not url.hosts and "host" not in url.options:
        raise of_another_form(FORM)
    if url.options.get("sslmode", SSL_MODES[0]) not in SSL_MODES:
        raise refused(f"must have one of {', '.join(SSL_MODES)} as sslmode")
    if "host" in url.options and (url.hosts or not url.options["host"].startswith("/")):
        raise refused("must have the folder of a socket as host, and then no other host")
    return Address(
        dsn=url.parts._replace(scheme="postgresql", query=urlencode(url.options)).geturl(),
        name=f"{url.hosts or url.options['host']}/{url.database}",
        several_hosts="," in url.hosts,
        pool_size=url.pool_size,
        statement_timeout_ms=url.statement_timeout_ms,
    )
