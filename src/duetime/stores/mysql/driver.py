"""asyncmy, as the shared SQL store takes a driver."""

import re
from collections.abc import Sequence
from typing import Any

from asyncmy import connection as asyncmy
from asyncmy.constants import CLIENT
from asyncmy.errors import MySQLError, OperationalError

from duetime.errors import StoreError
from duetime.stores.mysql.dialects import TRANSACTION_IDLE_S_MAX, Product
from duetime.stores.mysql.errors import ERRORS
from duetime.stores.mysql.url import Address
from duetime.stores.sql.connections import CONNECT_TIMEOUT_S

LOCK_WAIT_S_MAX = 10
_MARKS = ("MariaDB", "TiDB")
_SQL_MODE = (
    "STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,"
    "NO_ENGINE_SUBSTITUTION"
)


class MysqlDriver:
    """A way to one database."""

    errors = ERRORS

    def __init__(self, address: Address, product: Product) -> None:
        self.name = address.name
        self.idle_s_max = product.idle_s_max
        self._address = address
        self._product = product

    async def connect(self) -> "MysqlConnection":
        address = self._address
        native = _Native(
            host=address.host,
            port=address.port,
            user=address.user,
            password=address.password,
            database=address.database,
            ssl=address.tls,
            charset="utf8mb4",
            binary_prefix=True,
            client_flag=CLIENT.FOUND_ROWS,
            autocommit=None,
            connect_timeout=CONNECT_TIMEOUT_S,
            program_name="duetime",
        )
        native.tls_if_there = address.ssl_mode == "preferred"
        try:
            await native.connect()
        except OperationalError as error:
            if isinstance(error.__cause__, OSError):  # It says less than its cause.
                raise error.__cause__ from None
            raise
        connection = MysqlConnection(native)
        try:
            await self._set_up(connection)
        except BaseException:
            connection.abort()
            raise
        return connection

    async def _set_up(self, connection: "MysqlConnection") -> None:
        product = self._product
        ((version, statement_bytes_max),) = await connection.fetch(
            "SELECT version(), @@max_allowed_packet", ()
        )
        problem = refusal(product, version)
        if problem is not None:
            raise StoreError(f"{self.name}: {problem}")
        connection.statement_bytes_max = statement_bytes_max
        timeout_ms = self._address.statement_timeout_ms
        timeout_s = timeout_ms // 1000
        settings = product.settings.format(
            ms=timeout_ms, s=timeout_s, idle_s=TRANSACTION_IDLE_S_MAX
        )
        lock_wait_s = min(LOCK_WAIT_S_MAX, timeout_s)
        for statement in (
            f"SET NAMES utf8mb4 COLLATE {product.collation}",
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
            f"SET autocommit = 1, time_zone = '+00:00', sql_mode = '{_SQL_MODE}',"
            f" sql_safe_updates = 0, innodb_lock_wait_timeout = {lock_wait_s}, {settings}",
        ):
            await connection.execute(statement, ())


def refusal(product: Product, version: str) -> str | None:
    """Why a server of this version will not do; None if it will."""
    marks = [mark for mark in _MARKS if mark in version]
    if marks != [product.mark] * bool(product.mark):
        other = marks[0] if marks else "MySQL"
        return f"it is {other} {version}, and the URL says {product.title}"
    # TiDB names the MySQL that it is like first, and itself after its mark.
    own = version.partition("TiDB-v")[2] or version
    found = re.match(r"(?:5\.5\.5-)?(\d+)\.(\d+)\.(\d+)", own)
    if found is None or tuple(map(int, found.groups())) < product.version_min:
        needed = ".".join(map(str, product.version_min))
        return f"{product.title} {own} is too old: {needed} is needed"
    return None


class MysqlConnection:
    """One connection."""

    def __init__(self, native: "_Native") -> None:
        self.statement_bytes_max = 0
        self._native = native

    @property
    def usable(self) -> bool:
        return bool(self._native.connected and not self._native._stream_broken)

    async def fetch(self, statement: str, values: Sequence[object]) -> Sequence[Sequence[Any]]:
        await self._ask(statement, values)
        return self._native._result.rows or ()

    async def execute(self, statement: str, values: Sequence[object]) -> int:
        return await self._ask(statement, values)

    async def begin(self, *, snapshot: bool) -> None:
        if snapshot:
            await self._ask("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await self._ask("START TRANSACTION")

    async def commit(self) -> None:
        await self._ask("COMMIT")

    async def rollback(self) -> None:
        await self._ask("ROLLBACK")

    async def close(self) -> None:
        await self._native.ensure_closed()

    def abort(self) -> None:
        self._native.close()

    async def _ask(self, statement: str, values: Sequence[object] = ()) -> int:
        """Without a cursor of the driver's, which asks for the text of each warning and logs it:
        that may quote a value."""
        text = statement.replace("?", "%s") % tuple(map(self._native.literal, values))
        try:
            rows: int = await self._native.query(text)
        except MySQLError as error:
            if not _said_by_server(error):
                self.abort()  # What it says next may belong to anything.
            raise
        return rows


class _Native(asyncmy.Connection):  # type: ignore[misc]
    """That of the driver, which would ask any server for TLS, also one that has none, and would
    let go of a connection only when the other side agrees, where it is encrypted."""

    tls_if_there = False

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        super().close()

    async def _get_server_information(self) -> None:
        await super()._get_server_information()
        if self.tls_if_there and not self.server_capabilities & CLIENT.SSL:
            self._ssl_context = None
            self._client_flag &= ~CLIENT.SSL


def _said_by_server(error: MySQLError) -> bool:
    code = ERRORS.code(error)
    return isinstance(code, int) and not 2_000 <= code < 3_000
