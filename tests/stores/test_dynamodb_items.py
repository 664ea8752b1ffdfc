"""Keys whose order as text is the order of cursors, and that are never too long."""

from hypothesis import given
from hypothesis import strategies as st

from duetime.model import CURSOR_MAX, CURSOR_MIN, INSTANT_MAX, Cursor
from duetime.routing import timer_uuid
from duetime.stores.dynamodb.items import (
    SORT_KEY_BYTES_MAX,
    cursor_of,
    sort_key,
    sort_prefix,
    time_key,
)

_SECONDS = [0, 1, 999, 1_000, 951_782_399_999, 951_782_400_000, INSTANT_MAX]
_CURSORS = st.builds(
    Cursor,
    st.sampled_from(_SECONDS) | st.integers(0, INSTANT_MAX),
    st.sampled_from([bytes(16), b"\x7f" * 16, b"\x80" * 16, b"\xff" * 16])
    | st.binary(min_size=16, max_size=16),
)
_TEXT = st.text(
    st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=255
) | st.sampled_from(["\U0001f600" * 255, "ü" * 255, "x" * 255, "a#b", "#"])
_NAMESPACES = _TEXT.filter(lambda name: ":" not in name and "#" not in name)


@given(_CURSORS, _CURSORS)
def test_places_as_text_stand_in_the_order_of_cursors(one: Cursor, other: Cursor) -> None:
    assert (time_key(one).encode() < time_key(other).encode()) == (one < other)
    assert cursor_of(time_key(one)) == one


def test_a_place_is_written_as_the_documents_have_it() -> None:
    uuid = bytes.fromhex("550e8400e29b41d4a716446655440000")
    key = time_key(Cursor(1_735_725_600_000, uuid))
    assert key == "2025-01-01T10:00:00.000Z#550e8400-e29b-41d4-a716-446655440000"
    assert len(time_key(CURSOR_MIN)) == len(time_key(CURSOR_MAX)) == len(key)


@given(_NAMESPACES, _TEXT, _NAMESPACES, _TEXT)
def test_two_timers_never_share_a_key_and_no_key_is_too_long(
    namespace: str, id: str, other_namespace: str, other_id: str
) -> None:
    one = sort_key(namespace, id, timer_uuid(namespace, id))
    other = sort_key(other_namespace, other_id, timer_uuid(other_namespace, other_id))
    assert (one == other) == ((namespace, id) == (other_namespace, other_id))
    assert len(one.encode()) <= SORT_KEY_BYTES_MAX


@given(_NAMESPACES, _TEXT, st.integers(0, 255))
def test_a_key_begins_as_the_prefix_of_its_id_does(namespace: str, id: str, length: int) -> None:
    key = sort_key(namespace, id, timer_uuid(namespace, id))
    assert key.startswith(sort_prefix(namespace, id[:length]))


def test_ids_that_differ_behind_what_a_key_can_hold_have_keys_of_their_own() -> None:
    namespace = "\U0001f600" * 255
    keys = {sort_key(namespace, it, timer_uuid(namespace, it)) for it in ("a", "b", "ab")}
    assert len(keys) == 3
