"""What the tests of all stores on the shared SQL store need: all its statements, and a write
held up in the middle."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from duetime.store import ListCursor, ListQuery
from duetime.stores.sql import schema
from duetime.stores.sql import statements as sql
from duetime.stores.sql.connections import Session
from duetime.stores.sql.dialect import Dialect
from duetime.stores.sql.listing import arms_of, rows_of
from duetime.stores.sql.store import SqlStore
from duetime.testing.conformance import Hold

T = TypeVar("T")

WAIT_S = 10
CHANGES = ("INSERT INTO timers", "DELETE ", "MERGE INTO timers")


Before = Callable[[Session], Awaitable[None]]


class HoldBeforeWrite:
    """Keeps a store from the next statement that changes timers. The transaction that it stands
    in is real, and so are the locks of its fence."""

    def __init__(self) -> None:
        self._reached = asyncio.Event()
        self._released = asyncio.Event()

    async def reached(self) -> None:
        async with asyncio.timeout(WAIT_S):
            await self._reached.wait()

    def release(self) -> None:
        self._released.set()

    async def pass_by(self, session: Session) -> None:
        self._reached.set()
        await self._released.wait()


def statements_of(dialect: Dialect) -> list[tuple[str, str]]:
    """All that the store ever asks, by what it is for; not what a driver says to each session."""
    migrations = [schema._VERSIONS, *(it for version in schema.MIGRATIONS for it in version)]
    made = [it.format_map(dialect.types) for it in migrations]
    found = [(re.split(r" ON |\(", text)[0].strip().lower(), text) for text in made]
    for rows in (1, 2, dialect.rows_max):
        found += [
            ("fence", sql.lock_shards(dialect, rows)),
            ("release", sql.release(dialect, rows)),
            ("remove", sql.remove(dialect, rows)),
            ("read timers", sql.read_timers(dialect, rows)),
        ]
        for what in (sql.PUT, sql.RECORD, sql.NUMBER, sql.CLAIM):
            name = {sql.PUT: "put", sql.RECORD: "record", sql.NUMBER: "number"}.get(what, "claim")
            found += [(name, step.statement) for step in sql.upsert(dialect, what, rows)]
    for reads in (1, dialect.reads_max):
        found += [
            ("read due", sql.read_due(dialect, reads)),
            ("read outcomes", sql.read_outcomes(dialect, reads)),
        ]
    found += [
        ("read now", dialect.read_now),
        ("purge", dialect.purge),
        ("read shards", sql.READ_SHARDS),
        ("read documents", sql.READ_DOCUMENTS),
        ("insert document", sql.INSERT_DOCUMENT),
        ("update document", sql.UPDATE_DOCUMENT),
        ("delete document", sql.DELETE_DOCUMENT),
    ]
    for name, query in (
        ("", ListQuery(namespace="default", num_shards=8, offset=1, total=True)),
        (" by creation", ListQuery(namespace="a", num_shards=8, sort="created_at")),
        (" backwards", ListQuery(namespace="a", num_shards=8, descending=True)),
        (" continued", ListQuery(namespace="a", num_shards=8, after=ListCursor(1, bytes(16), 1))),
        (" by prefix", ListQuery(namespace="a", num_shards=8, id_prefix="a", execute_from=1)),
        (" without some", ListQuery(namespace="a", num_shards=8, without=frozenset([bytes(16)]))),
        (" of one table", ListQuery(namespace="a", num_shards=8, finished=())),
    ):
        arms = arms_of(query, dialect.lists)
        found.append((f"list{name}", rows_of(arms, query, dialect.lists).text))
        found += [(f"count{name}", arm.count().text) for arm in arms]
    return found


@contextmanager
def held(store: SqlStore) -> Iterator[Hold]:
    hold = HoldBeforeWrite()
    with before_changes(store, hold.pass_by):
        try:
            yield hold
        finally:
            hold.release()


@contextmanager
def before_changes(store: SqlStore, before: Before) -> Iterator[None]:
    """Do something on the store's own connection before each statement that changes timers."""
    pool = store._connections
    do = pool.do

    class Watched(Session):
        async def execute(self, statement: str, values: Sequence[object] = ()) -> int:
            if statement.lstrip().startswith(CHANGES):
                await before(Session(self._connection, self._answer_s_max))
            return await super().execute(statement, values)

    async def do_watched(work: Callable[[Session], Awaitable[T]]) -> T:
        async def watched_work(session: Session) -> T:
            return await work(Watched(session._connection, session._answer_s_max))

        return await do(watched_work)

    pool.do = do_watched  # type: ignore[method-assign]
    try:
        yield
    finally:
        del pool.do
