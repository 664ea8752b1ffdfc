"""The way to one MongoDB: a client of the driver, sessions, transactions."""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, TypeVar

import pymongo
from bson import Timestamp
from pymongo import AsyncMongoClient
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import ClientBulkWriteException, OperationFailure, PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.results import ClientBulkWriteResult

from duetime.errors import StoreError, StoreUnavailable
from duetime.stores.mongodb.errors import DRIVER_ERRORS, UNAUTHORIZED, translated, unwrapped
from duetime.stores.mongodb.url import Address

T = TypeVar("T")
Work = Callable[[AsyncClientSession], Awaitable[T]]

VERSION_MIN = "8.0"  # The first that writes to two collections in one command.
WIRE_VERSION_MIN = 25  # What it calls itself.
ABANDONED_S = 2
COMMIT_PAUSE_S = 0.05
UNKNOWN_COMMIT = "UnknownTransactionCommitResult"
APP = "duetime"
FIXED: dict[str, Any] = {
    "appname": APP,
    "datetime_conversion": "DATETIME_MS",  # No datetime on the way: it costs time.
    # Whatever the URL says: what was acknowledged is on the disks of a majority, and what was
    # read will not be taken back.
    "w": "majority",
    "journal": True,
    "readConcernLevel": "majority",
    "readPreference": "primary",
    "retryWrites": True,
    "retryReads": True,
}


class Connection:
    """A pool of connections. Beyond its size callers wait for one; how long any call may take,
    that and all its repetitions included, is bounded."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._client: AsyncMongoClient[dict[str, Any]] | None = None
        self._seen: Timestamp | None = None
        self._calls = 0
        self._idle = asyncio.Event()

    async def open(self) -> None:
        """`StoreError` if it is not a server that has all we need."""
        assert self._client is None
        try:
            self._client = AsyncMongoClient(self._address.url, **self._address.options, **FIXED)
        except DRIVER_ERRORS as error:
            raise translated(error, self._address.name) from error
        hello = await self.hello()
        if "setName" not in hello and hello.get("msg") != "isdbgrid":
            raise StoreError(
                f"{self._address.name}: it is a standalone server, which has no transactions:"
                " make it a replica set (--replSet, then rs.initiate()); one member is enough"
            )
        if hello["maxWireVersion"] < WIRE_VERSION_MIN:
            raise StoreError(
                f"{self._address.name}: its MongoDB is too old: {VERSION_MIN} is needed"
            )

    async def close(self) -> None:
        """Calls under way are finished first; none takes longer than it may."""
        client, self._client = self._client, None
        if client is not None:
            while self._calls:
                self._idle.clear()
                await self._idle.wait()
            await client.close()

    async def hello(self) -> dict[str, Any]:
        """What the server says of itself."""

        async def work(session: AsyncClientSession) -> dict[str, Any]:
            client = session.client
            return await client.admin.command(
                "hello", session=session, codec_options=client.codec_options
            )

        return await self.do(work)

    def database(self, session: AsyncClientSession) -> AsyncDatabase[Any]:
        return session.client[self._address.database]

    async def do(self, work: Work[T], *, snapshot: bool = False) -> T:
        """Run `work` with a session; its errors are the store's.

        It sees whatever a call before it has written or seen, on a primary elected since too.
        With `snapshot`, all that it reads is of one moment instead.
        """
        client = self._client
        if client is None:
            raise StoreUnavailable(f"{self._address.name}: the store is not open")
        self._calls += 1
        try:
            with pymongo.timeout(self._address.call_s_max):
                await self._find_server(client)
                async with client.start_session(snapshot=snapshot) as session:
                    if self._seen is not None and not snapshot:
                        session.advance_operation_time(self._seen)
                    answer = await work(session)
                    seen = session.operation_time
                    if seen is not None and (self._seen is None or seen > self._seen):
                        self._seen = seen
                    return answer
        except DRIVER_ERRORS as error:
            raise translated(error, self._address.name) from error
        finally:
            self._calls -= 1
            self._idle.set()

    async def transact(self, work: Work[T]) -> T:
        """Run `work` in a transaction, and again as long as others are in its way: until the
        call has taken as long as it may, or no server is found."""
        begun = monotonic()

        async def attempt(session: AsyncClientSession) -> T:
            await self._find_server(session.client)
            try:
                answer = await work(session)
                if session.in_transaction:
                    await self._commit(session, until=begun + self._address.call_s_max)
            except DRIVER_ERRORS:
                if session.in_transaction:  # The driver would look for a lost server much longer.
                    with pymongo.timeout(self._address.search_s_max):
                        await session.abort_transaction()
                raise
            return answer

        return await self.do(lambda session: session.with_transaction(attempt))

    async def _commit(self, session: AsyncClientSession, *, until: float) -> None:
        """Ask for it again while nobody knows whether it took effect: the server knows."""
        while True:
            try:
                with pymongo.timeout(self._address.search_s_max):
                    return await session.commit_transaction()
            except PyMongoError as error:
                if not error.has_error_label(UNKNOWN_COMMIT) or monotonic() > until:
                    raise
                await asyncio.sleep(COMMIT_PAUSE_S)
                await self._find_server(session.client)

    async def insist(self, session: AsyncClientSession, work: Work[T]) -> T:
        """Run `work`, one statement that waits where a transaction is in its way. What stays
        there was left by a process that died in the middle of a write."""
        until = monotonic() + self._address.call_s_max
        while True:
            try:
                with pymongo.timeout(ABANDONED_S):
                    return await work(session)
            except PyMongoError as error:
                if not error.timeout or monotonic() > until:
                    raise
                await self._find_server(session.client)
                await self._end_abandoned(session.client)

    async def _find_server(self, client: AsyncMongoClient[dict[str, Any]]) -> None:
        """Without one, a call would wait for as long as all of it may take."""
        if not client.topology_description.has_writable_server():
            with pymongo.timeout(self._address.search_s_max):
                await client.admin.command("ping")

    async def _end_abandoned(self, client: AsyncMongoClient[dict[str, Any]]) -> None:
        """End the transactions in which nothing happens any more.

        The server would keep what they hold for a minute. A process that is merely slow loses
        nothing: its commit fails, and it begins again with its fence.
        """
        idle = {
            "type": "idleSession",
            "appName": APP,
            "transaction.timeInactiveMicros": {"$gt": ABANDONED_S * 1_000_000},
        }
        admin = client.admin.with_options(read_concern=ReadConcern("local"))
        try:
            own = {"$currentOp": {"allUsers": False, "idleSessions": True}}
            found = await admin.aggregate([own, {"$match": idle}])
            sessions = [{"id": operation["lsid"]["id"]} async for operation in found]
            if sessions:
                await admin.command("killSessions", sessions)
        except OperationFailure as error:
            if error.code != UNAUTHORIZED:  # Then the server's minute has to pass.
                raise


async def bulk(
    session: AsyncClientSession, operations: list[Any], *, verbose: bool = False
) -> ClientBulkWriteResult:
    """Do them in their order, in as few commands as the server's limits allow."""
    try:
        return await session.client.bulk_write(operations, session=session, verbose_results=verbose)
    except ClientBulkWriteException as error:
        raise unwrapped(error) from None
