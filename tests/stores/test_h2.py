"""Oracle's dialect and SQL Server's against H2, because neither server can be had.

What the suite shows there is that every statement parses, binds its values in the right order
and means what the store takes it to mean. It shows nothing of their drivers, locks and plans.
"""

import pytest

from duetime.testing.conformance import Database, StoreConformance
from tests.stores.h2 import H2, H2Connection, H2Error
from tests.stores.h2.modes import ORACLE_MODE, SQLSERVER_MODE, H2Database, Mode
from tests.stores.sql_database import statements_of

pytestmark = pytest.mark.server


@pytest.mark.slow
class TestOracleStatements(StoreConformance):
    @pytest.fixture
    def database(self, h2: H2) -> Database:
        return H2Database(h2, ORACLE_MODE)


@pytest.mark.slow
class TestSqlServerStatements(StoreConformance):
    @pytest.fixture
    def database(self, h2: H2) -> Database:
        return H2Database(h2, SQLSERVER_MODE)


@pytest.mark.parametrize(
    ("mode", "unknown"),
    [
        (ORACLE_MODE, {"create table timers", "read due"}),
        (SQLSERVER_MODE, {"read due", "list without some", "count without some"}),
    ],
)
async def test_h2_knows_every_statement_as_it_is_but_these(
    h2: H2, mode: Mode, unknown: set[str]
) -> None:
    """Why not, and what it is told instead, say the mode's stand-ins; with those it knows all."""
    database = H2Database(h2, mode)
    store = database.handle()
    await store.open()
    connection = await database.driver.connect()
    refused = set()
    for name, text in statements_of(mode.dialect):
        # Nothing but the words: what is there cannot be made again.
        told = text.replace(" timers (", " timers_2 (", 1) if "TABLE" in text else text
        if not await _parses(connection, told):
            refused.add(name)
        assert await _parses(connection, mode.in_its_words(told)), name
    assert refused == unknown
    await connection.close()
    await store.close()


async def _parses(connection: H2Connection, statement: str) -> bool:
    try:
        await connection.parse(statement)
    except H2Error:
        return False
    return True
