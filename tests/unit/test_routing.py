"""From key to uuid and shard: stored rows are found by these, so they are frozen."""

import uuid as uuid_module
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duetime.model import CURSOR_MAX, CURSOR_MIN, Cursor
from duetime.routing import shard_of, timer_uuid, uuid_from_halves, uuid_halves

uuids = st.binary(min_size=16, max_size=16)
names = st.text(st.characters(exclude_characters=":#", exclude_categories=["Cs"]), min_size=1)
ids = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=255)


@pytest.mark.parametrize(
    ("namespace", "id", "uuid"),
    [
        ("max", "max", "270817dc-6da7-8695-4607-9e53693c7a40"),
        ("example-namespace", "user-notification-123", "51a9b091-a7e5-b7bd-3571-e1a584f90ed8"),
        ("default", "é", "1e847397-a064-e869-f543-7b6e87a6070a"),
    ],
)
def test_uuid_is_the_md5_of_namespace_and_id(namespace: str, id: str, uuid: str) -> None:
    assert str(uuid_module.UUID(bytes=timer_uuid(namespace, id))) == uuid


@pytest.mark.parametrize(
    ("id", "num_shards", "shard"),
    [
        ("user-reminder-123", 1024, 1484313750 % 1024),
        ("user-reminder-123", 1, 0),
        ("123456789", 1 << 32, 0xCBF43926),  # The check value of CRC-32 itself.
        ("", 16, 0),
    ],
)
def test_shard_is_the_crc32_of_the_id(id: str, num_shards: int, shard: int) -> None:
    assert shard_of(id, num_shards) == shard


@given(ids, st.integers(1, 4096))
def test_shard_is_within_bounds_and_of_the_utf8_bytes(id: str, num_shards: int) -> None:
    assert 0 <= shard_of(id, num_shards) < num_shards
    assert shard_of(id, num_shards) == crc32(id.encode("utf-8")) % num_shards


def test_ids_spread_evenly_over_shards() -> None:
    counts = [0] * 16
    for n in range(16_000):
        counts[shard_of(f"user-{n}", 16)] += 1
    assert min(counts) > 800
    assert max(counts) < 1_200


@given(st.tuples(names, ids), st.tuples(names, ids))
def test_two_keys_never_share_a_uuid(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert (timer_uuid(*one) == timer_uuid(*other)) == (one == other)


def test_a_colon_in_the_id_does_not_move_the_border_of_the_namespace() -> None:
    assert len({timer_uuid("a", "b:c"), timer_uuid("a", "c"), timer_uuid("b", "c")}) == 3


@given(uuids)
def test_halves_are_signed_64_bit_and_come_back_whole(uuid: bytes) -> None:
    high, low = uuid_halves(uuid)
    assert -(1 << 63) <= high < 1 << 63
    assert -(1 << 63) <= low < 1 << 63
    assert uuid_from_halves(high, low) == uuid


@given(uuids, uuids)
def test_halves_sort_as_the_bytes_do(one: bytes, other: bytes) -> None:
    assert (uuid_halves(one) < uuid_halves(other)) == (one < other)


@pytest.mark.parametrize("position", [0, 7, 8, 15])
def test_halves_keep_their_order_across_the_sign_bit(position: int) -> None:
    lower, upper = bytearray(16), bytearray(16)
    lower[position], upper[position] = 0x7F, 0x80
    assert uuid_halves(bytes(lower)) < uuid_halves(bytes(upper))


def test_the_zero_and_the_full_uuid_are_the_ends() -> None:
    assert uuid_halves(bytes(16)) == (-(1 << 63), -(1 << 63))
    assert uuid_halves(b"\xff" * 16) == ((1 << 63) - 1, (1 << 63) - 1)


@given(st.integers(0, 253_402_300_799_999), uuids)
def test_every_cursor_lies_between_the_ends(execute_at: int, uuid: bytes) -> None:
    assert CURSOR_MIN <= Cursor(execute_at, uuid) <= CURSOR_MAX
