"""From a timer's key to its uuid and its shard.

Pure, and frozen for ever once released: stored rows are found by these functions.
"""

from hashlib import md5
from zlib import crc32


def timer_uuid(namespace: str, id: str) -> bytes:
    """The 16 bytes of MD5("namespace:id"), with no version bits set.

    A namespace's name holds no `:`, so two keys never share a uuid.
    """
    return md5(f"{namespace}:{id}".encode(), usedforsecurity=False).digest()


def shard_of(id: str, num_shards: int) -> int:
    """CRC32 of the id's UTF-8 bytes, modulo the namespace's number of shards."""
    return crc32(id.encode()) % num_shards


def uuid_halves(uuid: bytes) -> tuple[int, int]:
    """A uuid as two signed 64-bit integers whose order is the order of its bytes.

    The sign bit is flipped: without that, 0x80… would sort before 0x7f… in a database that
    has only signed integers.
    """
    high = int.from_bytes(uuid[:8], "big") - (1 << 63)
    low = int.from_bytes(uuid[8:], "big") - (1 << 63)
    return high, low


def uuid_from_halves(high: int, low: int) -> bytes:
    """The uuid whose `uuid_halves` these are."""
    return (high + (1 << 63)).to_bytes(8, "big") + (low + (1 << 63)).to_bytes(8, "big")
