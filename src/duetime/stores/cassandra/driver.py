"""The driver, asked from the event loop: it has threads of its own, and calls back there."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from cassandra import ConsistencyLevel
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, ResultSet
from cassandra.policies import (
    DCAwareRoundRobinPolicy,
    ExponentialReconnectionPolicy,
    FallthroughRetryPolicy,
    RoundRobinPolicy,
    TokenAwarePolicy,
)
from cassandra.query import BatchStatement, BatchType, dict_factory, tuple_factory

from duetime.errors import StoreError, StoreUnavailable
from duetime.stores.cassandra.errors import DRIVER_ERRORS, translated
from duetime.stores.cassandra.url import Address

T = TypeVar("T")

REQUESTS_IN_FLIGHT_MAX = 64
ANSWER_S_MAX = 10
CONNECT_S_MAX = 5
RECONNECT_S_MAX = 5
DEFINE_S_MAX = 60
PAGE_ROWS = 1_000
VALUES_MAX = 100  # In one statement.
READ_TRIES = 2  # A host that went down under the first one is not asked again.
VERSION_MIN = (4, 0)
SCYLLADB = (3, 0)  # What every ScyllaDB says that it is.
PROTOCOL = 4  # All of them speak it.

Change = tuple[str, Sequence[object]]
"""A statement and its values."""

_SERIAL, _CONDITIONAL = "serial", "conditional"


class Driver:
    """Many requests side by side; beyond the bound, callers wait until others are answered."""

    def __init__(self, address: Address) -> None:
        self.name = address.name
        self._address = address
        self._session: Any = None
        self._closing = False
        self._prepared: dict[str, Any] = {}
        self._room = asyncio.Semaphore(REQUESTS_IN_FLIGHT_MAX)
        self._calls = 0
        self._idle = asyncio.Event()

    async def open(self) -> None:
        assert self._session is None
        self._session = await self._in_thread(self._connect)
        self._closing = False

    async def close(self) -> None:
        """Calls under way are finished first: each request of theirs has its bound in time."""
        if self._session is None or self._closing:
            return
        self._closing = True
        while self._calls:
            self._idle.clear()
            await self._idle.wait()
        session, self._session = self._session, None
        self._prepared = {}
        await asyncio.to_thread(session.cluster.shutdown)

    @asynccontextmanager
    async def call(self) -> AsyncIterator[None]:
        """A call of the store, however many requests it takes."""
        if self._session is None or self._closing:
            raise StoreUnavailable(f"{self.name}: the store is not open")
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            self._idle.set()

    async def rows(self, text: str, *values: object, serial: bool = False) -> list[Any]:
        """All rows. `serial` decides first what became of writes whose outcome is unknown."""
        return [row async for page in self.pages(text, *values, serial=serial) for row in page]

    async def rows_in(self, text: str, shard: int, values: Sequence[object]) -> list[Any]:
        """The rows of a shard that have one of the values, in no order."""
        chunks = [values[at : at + VALUES_MAX] for at in range(0, len(values), VALUES_MAX)]
        found = await all_of(self.rows(text, shard, chunk) for chunk in chunks)
        return [row for rows in found for row in rows]

    async def pages(
        self, text: str, *values: object, serial: bool = False, page_rows: int = PAGE_ROWS
    ) -> AsyncIterator[list[Any]]:
        statement = (await self._prepare(text)).bind(values)
        statement.fetch_size = page_rows
        profile = _SERIAL if serial else EXEC_PROFILE_DEFAULT
        more, place = True, None
        while more:
            for tries_left in reversed(range(READ_TRIES)):
                try:
                    result = await self._ask(statement, profile, place)
                    break
                except StoreUnavailable:
                    if not tries_left:
                        raise
            yield result.current_rows
            more, place = result.has_more_pages, result.paging_state

    async def change(self, *changes: Change) -> dict[str, Any]:
        """Make all of these in one partition, or none: the row that decided, by column.

        After `StoreUnavailable` it may have happened, or may yet.
        """
        if len(changes) == 1:
            ((text, values),) = changes
            statement = (await self._prepare(text)).bind(values)
        else:
            statement = BatchStatement(BatchType.UNLOGGED)
            for text, values in changes:
                statement.add(await self._prepare(text), values)
        result = await self._ask(statement, _CONDITIONAL)
        row: dict[str, Any] = result.current_rows[0]
        return row

    async def define(self, statement: str) -> None:
        """Change the schema, and wait until all hosts know it."""
        text = self._named(statement)
        await self._in_thread(lambda: self._session.execute(text, timeout=DEFINE_S_MAX))

    async def _prepare(self, text: str) -> Any:
        if text not in self._prepared:
            self._prepared[text] = await self._in_thread(
                lambda: self._session.prepare(self._named(text))
            )
        return self._prepared[text]

    def _named(self, text: str) -> str:
        """Which keyspace is part of a statement: a connection may lose the one it was set to."""
        return text.replace("$keyspace", self._address.keyspace)

    async def _ask(self, statement: Any, profile: object, place: object = None) -> Any:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()

        def settle(how: Callable[[Any], None], value: object) -> None:
            if not answer.done():  # Else nobody waits for it any more.
                how(value)

        async with self._room:
            try:
                asked = self._session.execute_async(
                    statement, execution_profile=profile, paging_state=place
                )
                asked.add_callbacks(
                    lambda rows: loop.call_soon_threadsafe(settle, answer.set_result, rows),
                    lambda error: loop.call_soon_threadsafe(settle, answer.set_exception, error),
                )
                return ResultSet(asked, await answer)
            except DRIVER_ERRORS as error:
                raise translated(error, self.name) from error

    async def _in_thread(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(work)
        except DRIVER_ERRORS as error:
            raise translated(error, self.name) from error

    def _connect(self) -> Any:
        # What it has to say reaches us as errors; it would add a traceback for each second that
        # a host is away.
        logging.getLogger("cassandra").setLevel(logging.CRITICAL)
        address = self._address
        cluster = Cluster(
            address.hosts,
            port=address.hosts[0][1],
            auth_provider=address.user and PlainTextAuthProvider(address.user, address.password),
            execution_profiles=_profiles(address.datacenter),
            reconnection_policy=ExponentialReconnectionPolicy(0.2, RECONNECT_S_MAX, None),
            protocol_version=PROTOCOL,
            connect_timeout=CONNECT_S_MAX,
            control_connection_timeout=CONNECT_S_MAX,
            monitor_reporting_enabled=False,
        )
        try:
            session = cluster.connect()
            _check_keyspace(cluster, address)
            release = session.execute("SELECT release_version FROM system.local").one()[0]
            _check(release, self.name)
        except BaseException:
            cluster.shutdown()
            raise
        return session


async def all_of(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Their answers. If one fails all are waited for: none goes on behind our back."""
    answers = await asyncio.gather(*calls, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return [answer for answer in answers if not isinstance(answer, BaseException)]


def _check_keyspace(cluster: Any, address: Address) -> None:
    if address.keyspace not in cluster.metadata.keyspaces:
        raise StoreUnavailable(f"{address.name}: there is no such keyspace")


def _check(release: str, database: str) -> None:
    version = tuple(map(int, release.split(".")[:2]))
    needed = ".".join(map(str, VERSION_MIN))
    if version < VERSION_MIN and version != SCYLLADB:
        raise StoreError(f"{database}: Cassandra {release} is too old: {needed} is needed")


def _profiles(datacenter: str | None) -> dict[object, ExecutionProfile]:
    """Nothing is repeated by the driver: whether that is safe, only we know."""
    if datacenter is None:
        # Nodes in several datacenters may race for a shard: all replicas have a say.
        hosts, quorum, serial = (
            RoundRobinPolicy(),
            ConsistencyLevel.QUORUM,
            ConsistencyLevel.SERIAL,
        )
    else:
        hosts, quorum, serial = (
            DCAwareRoundRobinPolicy(datacenter),
            ConsistencyLevel.LOCAL_QUORUM,
            ConsistencyLevel.LOCAL_SERIAL,
        )

    def profile(consistency: int, row_factory: Callable[..., Any]) -> ExecutionProfile:
        return ExecutionProfile(
            load_balancing_policy=TokenAwarePolicy(hosts),
            retry_policy=FallthroughRetryPolicy(),
            consistency_level=consistency,
            serial_consistency_level=serial,
            request_timeout=ANSWER_S_MAX,
            row_factory=row_factory,
        )

    return {
        EXEC_PROFILE_DEFAULT: profile(quorum, tuple_factory),
        _SERIAL: profile(serial, tuple_factory),
        _CONDITIONAL: profile(quorum, dict_factory),
    }
