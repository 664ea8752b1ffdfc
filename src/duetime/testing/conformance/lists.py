"""Lists that show unfinished timers and history together."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from duetime.model import Finished, Timer
from duetime.store import ListCursor, Listing, ListQuery, Store
from duetime.testing.conformance.database import Base
from duetime.testing.conformance.timers import (
    NOW,
    a_timer,
    as_kept,
    batch,
    finished,
)

Entry = Timer | Finished

SHARDS = 3
IDS = ["a", "ab", "abc", "a%", "a%b", "a_", "a_b", "A", "b", "\U0010ffff", "\U0010ffffx", "ü"]


def _query(**fields: Any) -> ListQuery:
    defaults: dict[str, Any] = {"namespace": "default", "num_shards": SHARDS}
    return ListQuery(**defaults | fields)


def _timer(entry: Entry) -> Timer:
    return entry if isinstance(entry, Timer) else entry.timer


def _place(entry: Entry) -> ListCursor:
    timer = _timer(entry)
    return ListCursor(timer.execute_at, timer.uuid, entry.at if isinstance(entry, Finished) else 0)


def _matches(entry: Entry, query: ListQuery) -> bool:
    timer = _timer(entry)
    if isinstance(entry, Finished):
        wanted = entry.status in query.finished and entry.at > query.finished_after
    else:
        wanted = query.pending and timer.uuid not in query.without
    low, high = query.execute_from, query.execute_before
    return (
        wanted
        and timer.namespace == query.namespace
        and timer.id.startswith(query.id_prefix)
        and (low is None or timer.execute_at >= low)
        and (high is None or timer.execute_at < high)
    )


def listed(entries: Sequence[Entry], query: ListQuery) -> Listing:
    """What the port promises, said another way."""
    matching = [entry for entry in entries if _matches(entry, query)]
    page = [entry for entry in matching if query.after is None or _place(entry) > query.after]

    def order(entry: Entry) -> tuple[int, bytes, int]:
        execute_at, uuid, at = _place(entry)
        created = query.sort == "created_at"
        return (_timer(entry).created_at if created else execute_at, uuid, at)

    page.sort(key=order, reverse=query.descending)
    page = page[query.offset :][: query.limit]
    return Listing(page, len(matching) if query.total else None)


async def _fill(store: Store) -> list[Entry]:
    """Every id, unfinished and finished in every way, in two namespaces."""
    entries: list[Entry] = []
    leases = await store.claim(range(SHARDS), owner="node-a", at=NOW)
    batches = [batch(lease) for lease in leases]
    for number, name in enumerate(IDS):
        for namespace in ("default", "other"):
            timer = a_timer(
                name,
                namespace=namespace,
                shard=number % SHARDS,
                at=NOW + number // 4 * 100,
                created_at=NOW - number // 3 * 10,
            )
            runs = [
                finished(timer, "completed", at=NOW),
                finished(timer, "failed", at=NOW + 1),
                finished(structs.replace(timer, execute_at=NOW - 500), "canceled", at=NOW + 2),
            ][: number % 4]
            batches[timer.shard].finished.extend(runs)
            entries += map(as_kept, runs)
            if number % 5:
                batches[timer.shard].puts.append(timer)
                entries.append(timer)
    assert await store.apply(batches) == frozenset()
    return entries


_QUERIES: st.SearchStrategy[ListQuery] = st.builds(
    _query,
    namespace=st.sampled_from(["default", "other", "none"]),
    pending=st.booleans(),
    finished=st.lists(st.sampled_from(["completed", "failed", "canceled"]), unique=True).map(tuple),
    finished_after=st.sampled_from([0, NOW - 1, NOW, NOW + 1, NOW + 2]),
    without=st.frozensets(st.sampled_from([a_timer(name).uuid for name in IDS])),
    id_prefix=st.sampled_from([*IDS, "zz"]),
    execute_from=st.none() | st.sampled_from([0, NOW, NOW + 100, NOW + 101]),
    execute_before=st.none() | st.sampled_from([NOW, NOW + 100, NOW + 101]),
    offset=st.integers(0, 5),
    limit=st.integers(1, 50),
    total=st.booleans(),
)
_ORDERS = st.one_of(
    st.fixed_dictionaries(
        {"sort": st.sampled_from(["execute_at", "created_at"]), "descending": st.booleans()}
    ),
    st.fixed_dictionaries(
        {
            "after": st.builds(
                ListCursor,
                st.sampled_from([0, NOW - 500, NOW, NOW + 100]),
                st.sampled_from([bytes(16), *(a_timer(name).uuid for name in IDS), b"\xff" * 16]),
                st.sampled_from([0, NOW, NOW + 1]),
            )
        }
    ),
)


class Lists(Base):
    async def test_every_query_is_answered_as_the_port_says(self, store: Store) -> None:
        entries = await _fill(store)

        # One event loop for all examples, one database for all queries.
        queries: list[ListQuery] = []

        @settings(
            max_examples=300,
            deadline=None,
            database=None,
            suppress_health_check=[HealthCheck.too_slow],
        )
        @given(query=_QUERIES, order=_ORDERS)
        def collect(query: ListQuery, order: dict[str, Any]) -> None:
            queries.append(structs.replace(query, **order))

        collect()
        for query in queries:
            assert await store.select(query) == listed(entries, query), query

    @pytest.mark.parametrize("prefix", ["%", "a%", "a_", "_", "a*", "ü", "\U0010ffff", "a'b"])
    async def test_in_a_prefix_every_character_stands_for_itself(
        self, store: Store, prefix: str
    ) -> None:
        entries = await _fill(store)
        query = _query(id_prefix=prefix, total=True)
        assert await store.select(query) == listed(entries, query)

    @pytest.mark.parametrize("limit", [1, 2, 7])
    async def test_paging_by_cursor_loses_and_repeats_nothing(
        self, store: Store, limit: int
    ) -> None:
        entries = await _fill(store)
        seen: list[Entry] = []
        after = None
        while True:
            query = _query(after=after, limit=limit, total=True)
            page, total = await store.select(query)
            seen += page
            if len(page) < limit:
                break
            after = _place(page[-1])
            assert total == len([entry for entry in entries if _matches(entry, query)])
        assert seen == listed(entries, _query(limit=1_000)).entries

    async def test_a_total_counts_all_that_match_whatever_the_page(self, store: Store) -> None:
        entries = await _fill(store)
        everything = len(listed(entries, _query(limit=1_000)).entries)
        for page in ({"limit": 1}, {"offset": 1_000}, {"descending": True, "sort": "created_at"}):
            assert (await store.select(_query(total=True, **page))).total == everything

    async def test_no_total_is_counted_where_none_is_asked(self, store: Store) -> None:
        await _fill(store)
        assert (await store.select(_query())).total is None

    @pytest.mark.parametrize(
        "wanted",
        [{"finished": ()}, {"pending": False}, {"pending": False, "finished": ("failed",)}],
    )
    async def test_a_list_of_one_kind_is_like_any_other(
        self, store: Store, wanted: dict[str, Any]
    ) -> None:
        entries = await _fill(store)
        for query in (_query(**wanted, total=True), _query(**wanted, limit=2, offset=1)):
            assert await store.select(query) == listed(entries, query)

    async def test_a_list_of_nothing_wanted_is_empty(self, store: Store) -> None:
        await _fill(store)
        query = _query(pending=False, finished=(), total=True)
        assert await store.select(query) == Listing([], 0)
