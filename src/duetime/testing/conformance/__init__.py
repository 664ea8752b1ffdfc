"""The suite that every store passes.

A store's test file supplies a fresh database and inherits the rest:

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def database(self) -> Iterator[Database]:
            yield MyDatabase()

Tests skip by trait, never by a store's name. Common mistakes it catches: a fence that only
reads, a put that leaves the row of an earlier time behind, signed uuids, a cursor that
swallows timers of its own instant, a prefix in which `%` is more than a character.
"""

from duetime.testing.conformance.claims import Claims
from duetime.testing.conformance.database import Database, Hold
from duetime.testing.conformance.documents import Documents
from duetime.testing.conformance.due import DueReads
from duetime.testing.conformance.fence import Fence
from duetime.testing.conformance.history import History
from duetime.testing.conformance.lifecycle import Lifecycle
from duetime.testing.conformance.lists import Lists
from duetime.testing.conformance.writes import Writes

__all__ = ["Database", "Hold", "StoreConformance"]


class StoreConformance(Lifecycle, Claims, Writes, Fence, DueReads, History, Lists, Documents):
    """Everything the port promises."""
