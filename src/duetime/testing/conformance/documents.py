"""Small values with versions."""

import asyncio

from duetime.store import Document, Store
from duetime.testing.conformance.database import Base


class Documents(Base):
    async def test_a_document_is_made_changed_and_deleted_by_version(self, store: Store) -> None:
        assert await store.write_document("kind", "name", b'{"n": 1}', expected_version=0)
        assert await store.documents("kind") == [Document("kind", "name", 1, b'{"n": 1}')]
        assert await store.write_document("kind", "name", b'{"n": 2}', expected_version=1)
        assert await store.documents("kind") == [Document("kind", "name", 2, b'{"n": 2}')]
        assert await store.delete_document("kind", "name", expected_version=2)
        assert await store.documents("kind") == []

    async def test_another_version_than_expected_changes_nothing(self, store: Store) -> None:
        write, delete = store.write_document, store.delete_document
        assert not await write("kind", "name", b"1", expected_version=1)
        assert not await delete("kind", "name", expected_version=1)
        assert not await delete("kind", "name", expected_version=0)
        assert await write("kind", "name", b"1", expected_version=0)
        assert not await write("kind", "name", b"2", expected_version=0)
        assert not await write("kind", "name", b"2", expected_version=2)
        assert not await delete("kind", "name", expected_version=2)
        assert not await delete("kind", "name", expected_version=0)
        assert await store.documents("kind") == [Document("kind", "name", 1, b"1")]

    async def test_a_document_deleted_and_made_again_starts_at_one(self, store: Store) -> None:
        assert await store.write_document("kind", "name", b"1", expected_version=0)
        assert await store.delete_document("kind", "name", expected_version=1)
        assert await store.write_document("kind", "name", b"2", expected_version=0)
        assert await store.documents("kind") == [Document("kind", "name", 1, b"2")]

    async def test_documents_are_listed_by_name_within_their_kind(self, store: Store) -> None:
        for kind, name in [("b", "y"), ("a", "z"), ("a", "Z"), ("a", "ä"), ("b", "z")]:
            assert await store.write_document(kind, name, b"{}", expected_version=0)
        assert [document.name for document in await store.documents("a")] == ["Z", "z", "ä"]
        assert [document.name for document in await store.documents("b")] == ["y", "z"]
        assert await store.documents("c") == []

    async def test_of_writers_that_race_exactly_one_wins(self, store: Store, rival: Store) -> None:
        for version in range(5):
            writes = [
                handle.write_document("kind", "name", str(n).encode(), expected_version=version)
                for n, handle in enumerate([store, rival] * 5)
            ]
            answers = await asyncio.gather(*writes)
            assert answers.count(True) == 1
            (document,) = await store.documents("kind")
            assert document.version == version + 1
            assert document.body == str(answers.index(True)).encode()
