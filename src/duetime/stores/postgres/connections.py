"""Connections to one PostgreSQL, set up the way the store's statements need them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import asyncpg
from asyncpg import Connection

from duetime.errors import StoreError, StoreUnavailable
from duetime.stores.postgres.errors import (
    DRIVER_ERRORS,
    is_conflict,
    spoils_connections,
    translated,
)
from duetime.stores.postgres.url import Address

T = TypeVar("T")

VERSION_MIN = 13
CONNECT_TIMEOUT_S = 10
ANSWER_GRACE_S = 5  # From when the server should have given up to when we do.
TRIES = 5
EPOCH_MS = 946_684_800_000  # 2000-01-01, from which PostgreSQL counts.

_COMMON = {
    "jit": "off",
    # The fence is made for this level; a database may have another as its default.
    "default_transaction_isolation": "read committed",
    # A node that freezes or loses its machine within a transaction holds its shards' rows, and
    # who takes over waits for them. Ours stand still for a round trip at most.
    "idle_in_transaction_session_timeout": "2000",
}
FEW_STATEMENTS = _COMMON | {
    # Each has one right plan, from the rows that go in to the rows found by an index, whatever
    # the values and however small the tables were when it was made. It is made once; so it
    # must not rest on statistics, which for tables that were just filled are wrong for minutes.
    # With pages for nothing, a row's address is always cheaper than an index, and an index
    # that has the order asked for than another one and a sort.
    "plan_cache_mode": "force_generic_plan",
    "random_page_cost": "0",
    "seq_page_cost": "0",
    "enable_seqscan": "off",
    "enable_sort": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_material": "off",
    "enable_memoize": "off",
}
"""For the statements of `statements`."""
MANY_QUERIES = _COMMON | {
    # What is best depends on the values. Indexes are warm as a rule.
    "plan_cache_mode": "force_custom_plan",
    "random_page_cost": "1.1",
    "enable_seqscan": "off",
}
"""For lists, each of which may be another statement."""


class Connections:
    """A pool. Beyond its size callers wait for a connection, each at most as long as the
    statements before it may take. Broken ones are replaced when they are next wanted."""

    def __init__(self, address: Address, *, size_max: int, settings: dict[str, str]) -> None:
        self._address = address
        self._size_max = size_max
        self._settings = settings | {"statement_timeout": str(address.statement_timeout_ms)}
        self._answer_s_max = address.statement_timeout_ms / 1000 + ANSWER_GRACE_S
        self._pool: Any = None

    async def open(self) -> None:
        """Nothing is connected to before it is needed."""
        assert self._pool is None
        self._pool = await asyncpg.create_pool(
            self._address.dsn,
            min_size=0,
            max_size=self._size_max,
            timeout=CONNECT_TIMEOUT_S,
            command_timeout=self._answer_s_max,
            init=self._set_up,
            reset=_leave_as_it_is,
            target_session_attrs="read-write" if self._address.several_hosts else None,
            server_settings={"application_name": "duetime"},
        )

    async def close(self) -> None:
        """Calls under way are finished first, unless the server does not answer any more."""
        pool, self._pool = self._pool, None
        if pool is not None:
            try:
                async with asyncio.timeout(self._answer_s_max):
                    await pool.close()
            except TimeoutError:
                pool.terminate()

    async def do(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run `work` with a connection; its errors are the store's.

        It is run again if all of it was undone because others were in its way; so it must be
        one statement, or one transaction.
        """
        tries = 0
        while True:
            tries += 1
            pool = self._pool
            if pool is None:
                raise StoreUnavailable(f"{self._address.name}: the store is not open")
            try:
                async with pool.acquire() as connection:
                    try:
                        return await work(connection)
                    except TimeoutError:
                        connection.terminate()  # Nobody is there to be asked to cancel.
                        raise
            except DRIVER_ERRORS as error:
                if is_conflict(error) and tries < TRIES:
                    continue
                if spoils_connections(error):
                    await pool.expire_connections()
                raise translated(error, self._address.name) from error

    async def _set_up(self, connection: Connection) -> None:
        version = connection.get_server_version()
        if version.major < VERSION_MIN:
            raise StoreError(
                f"{self._address.name}: PostgreSQL {version.major}.{version.minor} is too old:"
                f" {VERSION_MIN} is needed"
            )
        encoding = connection.get_settings().server_encoding
        if encoding != "UTF8":
            raise StoreError(f"{self._address.name}: its encoding is {encoding}: UTF8 is needed")
        await connection.execute(
            "SELECT set_config(name, value, false)"
            " FROM unnest($1::text[], $2::text[]) AS setting (name, value)"
            " JOIN pg_settings USING (name)",
            list(self._settings),
            list(self._settings.values()),
        )
        # What was acknowledged is durable. Stronger settings are the operator's to choose.
        await connection.execute(
            "SELECT set_config('synchronous_commit', 'on', false)"
            " WHERE current_setting('synchronous_commit') = 'off'"
        )
        # No datetime on the way: it costs time, and invites zones.
        await connection.set_type_codec(
            "timestamp",
            schema="pg_catalog",
            encoder=lambda at: ((at - EPOCH_MS) * 1000,),
            decoder=lambda us: us[0] // 1000 + EPOCH_MS,
            format="tuple",
        )
        await connection.set_type_codec(
            "uuid", schema="pg_catalog", encoder=bytes, decoder=bytes, format="binary"
        )


async def _leave_as_it_is(connection: Connection) -> None:
    """The usual reset is a round trip after each call, and would undo what we set up."""
    if connection.is_in_transaction():
        connection.terminate()
