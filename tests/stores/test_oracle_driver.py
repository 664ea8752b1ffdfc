"""What the store's connection asks of oracledb, where oracledb is played by the test."""

import asyncio
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import oracledb
import pytest

from duetime.stores.oracle.driver import OracleConnection

LOST = oracledb.OperationalError(SimpleNamespace(full_code="DPY-4011", message="lost"))


class Native:
    """Remembers what it is asked; what it raises is given."""

    def __init__(self) -> None:
        self.autocommit = True
        self.asked: list[tuple[Any, ...]] = []
        self.raises: BaseException | None = None
        self.healthy = True
        self.rowcount = 7

    def cursor(self) -> "Native":
        return self

    def __enter__(self) -> "Native":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def setinputsizes(self, *types: object) -> None:
        self.asked.append(("types", types))

    async def execute(self, statement: str, values: Any, **_: Any) -> None:
        await self._do("execute", statement, list(values))

    async def executemany(self, statement: str, rows: Any) -> None:
        await self._do("executemany", statement, [list(row) for row in rows])

    async def fetchall(self) -> list[tuple[int]]:
        return [(1,)]

    async def commit(self) -> None:
        await self._do("commit")

    async def rollback(self) -> None:
        await self._do("rollback")

    def is_healthy(self) -> bool:
        return self.healthy

    def terminate(self) -> None:
        self.healthy = False

    async def _do(self, *what: Any) -> None:
        self.asked.append(what)
        await asyncio.sleep(0)
        if self.raises is not None:
            raise self.raises


@pytest.fixture
def native() -> Native:
    return Native()


@pytest.fixture
def connection(native: Native) -> OracleConnection:
    return OracleConnection(native)  # type: ignore[arg-type]


async def test_many_rows_are_one_array(native: Native, connection: OracleConnection) -> None:
    at = datetime(2027, 1, 1)
    assert await connection.execute("DELETE FROM t WHERE a = ? AND b = ?", [1, at, 2, at]) == 7
    assert native.asked == [
        ("types", (None, oracledb.DB_TYPE_TIMESTAMP)),
        ("executemany", "DELETE FROM t WHERE a = :1 AND b = :2", [[1, at], [2, at]]),
    ]


async def test_one_row_is_none(native: Native, connection: OracleConnection) -> None:
    await connection.execute("DELETE FROM t WHERE a = ?", [b"1"])
    await connection.execute("DELETE FROM t", ())
    assert await connection.fetch("SELECT a FROM t", ()) == [(1,)]
    assert [asked for asked in native.asked if asked[0] != "types"] == [
        ("execute", "DELETE FROM t WHERE a = :1", [b"1"]),
        ("execute", "DELETE FROM t", []),
        ("execute", "SELECT a FROM t", []),
    ]


async def test_only_within_a_transaction_it_does_not_commit_by_itself(
    native: Native, connection: OracleConnection
) -> None:
    for end in (connection.commit, connection.rollback):
        await connection.begin(snapshot=False)
        assert not native.autocommit
        await end()
        assert native.autocommit
    assert connection.usable


async def test_an_error_leaves_it_usable_and_a_failed_commit_does_not(
    native: Native, connection: OracleConnection
) -> None:
    await connection.begin(snapshot=False)
    native.raises = LOST
    with pytest.raises(oracledb.OperationalError):
        await connection.execute("DELETE FROM t", ())
    assert connection.usable  # As far as the driver knows, which it asks.
    with pytest.raises(oracledb.OperationalError):
        await connection.commit()
    assert not connection.usable


async def test_what_is_given_up_in_the_middle_makes_it_unusable(
    native: Native, connection: OracleConnection
) -> None:
    asking = asyncio.create_task(connection.fetch("SELECT a FROM t", ()))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert not connection.usable
    connection.abort()
    assert not native.healthy
