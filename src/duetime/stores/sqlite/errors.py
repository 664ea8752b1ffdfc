"""SQLite's errors as the store's own."""

import sqlite3
from pathlib import Path

import msgspec

from duetime.errors import StoreError, StoreUnavailable

DRIVER_ERRORS = (sqlite3.Error, msgspec.MsgspecError)

_UNAVAILABLE = {
    sqlite3.SQLITE_AUTH: "access was denied",
    sqlite3.SQLITE_BUSY: "another program holds its lock",
    sqlite3.SQLITE_CANTOPEN: "its file cannot be opened",
    sqlite3.SQLITE_CORRUPT: "its file is damaged",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_INTERRUPT: "the call was interrupted",
    sqlite3.SQLITE_IOERR: "reading or writing its file failed",
    sqlite3.SQLITE_LOCKED: "a table is locked",
    sqlite3.SQLITE_NOLFS: "the file system cannot hold so large a file",
    sqlite3.SQLITE_NOMEM: "there is no memory left",
    sqlite3.SQLITE_NOTADB: "its file is not an SQLite database",
    sqlite3.SQLITE_PERM: "access was denied",
    sqlite3.SQLITE_PROTOCOL: "its file locking failed",
    sqlite3.SQLITE_READONLY: "its file is read-only",
}


def translated(error: Exception, database: Path) -> StoreError:
    """The store's error for one of DRIVER_ERRORS.

    What is not in the table is a defect of ours, or a row that another program has written.
    """
    code = getattr(error, "sqlite_errorcode", 0)
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    reason = _UNAVAILABLE.get(code & 0xFF)  # The low byte; the rest says it more precisely.
    if reason is None:
        return StoreError(f"{database}: {error} ({name})")
    return StoreUnavailable(f"{database}: {reason} ({name})")
