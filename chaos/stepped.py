"""`duetime`, with a wall clock that the harness can set: `python -m chaos.stepped serve`.

How far it is from real time stands in a file that both processes map into memory, so that a
step takes effect in the moment it is written. Not a product option: it replaces the clock
from outside.
"""

import mmap
import os
import struct
import sys
from pathlib import Path

from duetime import cli, node
from duetime.clock import SystemClock

SETTING = "CHAOS_WALL_CLOCK"
_OFFSET = struct.Struct("q")


class Offset:
    """Milliseconds from real time, shared through a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.exists():
            path.write_bytes(_OFFSET.pack(0))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), _OFFSET.size)

    def read(self) -> int:
        (offset,) = _OFFSET.unpack_from(self._shared)
        return int(offset)

    def write(self, offset_ms: int) -> None:
        _OFFSET.pack_into(self._shared, 0, offset_ms)


class SteppedClock(SystemClock):
    """The machine's clocks, the wall one set by somebody."""

    def __init__(self) -> None:
        self._offset = Offset(Path(os.environ[SETTING]))

    def now(self) -> int:
        return super().now() + self._offset.read()

    def until(self, at: int) -> float:
        return super().until(at - self._offset.read())


if __name__ == "__main__":
    vars(node)["SystemClock"] = SteppedClock
    sys.argv[0] = "duetime"
    cli.main()
