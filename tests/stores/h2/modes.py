"""What H2 is to be taken for, and what of the dialects it has to be told in other words."""

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from duetime.store import Store
from duetime.stores.oracle.dialect import ORACLE
from duetime.stores.sql.dialect import Dialect
from duetime.stores.sql.store import SqlStore
from duetime.stores.sqlserver.dialect import SQLSERVER
from duetime.testing.conformance import Hold
from tests.stores.h2 import H2, H2Driver
from tests.stores.sql_database import held


class StandIn(NamedTuple):
    """What is said instead of what, and why."""

    theirs: re.Pattern[str]
    text: str
    reason: str


def _instead_of(theirs: str, text: str, reason: str) -> StandIn:
    return StandIn(re.compile(re.escape(theirs)), text, reason)


_POSITION = _instead_of(
    "SELECT ?, shard_id",
    "SELECT CAST(? AS INT), shard_id",
    "it wants to know the type of a value among the columns of a union",
)


class Mode(NamedTuple):
    """One of H2's."""

    name: str
    dialect: Dialect
    stand_ins: Sequence[StandIn]

    def in_its_words(self, statement: str) -> str:
        for stand_in in self.stand_ins:
            statement = stand_in.theirs.sub(stand_in.text, statement)
        return statement


ORACLE_MODE = Mode(
    "Oracle",
    ORACLE,
    (
        _POSITION,
        _instead_of(ORACLE.types["timers"], "", "its tables are not organized by an index"),
    ),
)
SQLSERVER_MODE = Mode(
    "MSSQLServer",
    SQLSERVER,
    (
        _POSITION,
        _instead_of(
            "SELECT CONVERT(BINARY(16), value, 2) FROM STRING_SPLIT(?, ',')",
            "SELECT uuid FROM UUIDS(?)",
            "it has no STRING_SPLIT, and no style of CONVERT",
        ),
        StandIn(
            re.compile(rf"{re.escape(SQLSERVER.lock_hint)}(.*)", re.DOTALL),
            r"\1 FOR UPDATE",
            "it reads over hints, and would lock nothing",
        ),
    ),
)


class H2Database:
    """One, empty, in memory."""

    def __init__(self, h2: H2, mode: Mode) -> None:
        self.driver = H2Driver(h2, mode.name, mode.in_its_words)
        self._dialect = mode.dialect

    def handle(self) -> Store:
        return SqlStore(self._dialect, self.driver, pool_size=10, statement_timeout_ms=30_000)

    def hold(self, store: Store) -> AbstractContextManager[Hold] | None:
        assert isinstance(store, SqlStore)
        return held(store)
