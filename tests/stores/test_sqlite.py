from pathlib import Path

import pytest

from duetime.testing.conformance import Database, StoreConformance
from tests.stores.sqlite_database import SqliteFile


@pytest.mark.store("sqlite")
class TestSqliteStore(StoreConformance):
    @pytest.fixture
    def database(self, tmp_path: Path) -> Database:
        return SqliteFile(tmp_path / "timers.db")
