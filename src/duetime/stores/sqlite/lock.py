"""One process at a time on one database."""

import fcntl
import os
from pathlib import Path

from duetime.errors import StoreUnavailable


class ProcessLock:
    """A lock on a file beside the database. The kernel lets go of it however we end.

    SQLite's own locks would let a second process in between two writes: it would claim our
    shards, and both would fire what they hold in memory.
    """

    def __init__(self, database: Path) -> None:
        self._database = database
        self._path = database.with_name(database.name + ".lock")
        self._file: int | None = None

    def take(self) -> None:
        """`StoreUnavailable` names the process that holds it."""
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreUnavailable(
                f"{self._database}: {self._path.name} cannot be opened in"
                f" {self._path.parent.absolute()}: {error.strerror}"
            ) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(file, 20).decode(errors="replace") or "unknown"
            os.close(file)
            raise StoreUnavailable(
                f"{self._database} is in use by process {holder}:"
                " an SQLite database serves one at a time"
            ) from error
        os.ftruncate(file, 0)
        os.pwrite(file, str(os.getpid()).encode(), 0)
        self._file = file

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
