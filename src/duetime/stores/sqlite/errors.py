"""SQLite's errors as the store's own."""

import sqlite3

from duetime.errors import StoreError, StoreUnavailable

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


def translated(error: sqlite3.Error) -> StoreError:
    """The store's error for SQLite's. What is not in the table is a defect of ours."""
    code = getattr(error, "sqlite_errorcode", None)
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    reason = None if code is None else _UNAVAILABLE.get(code & 0xFF)  # Without what is extended.
    if reason is None:
        mine: StoreError = StoreError(f"SQLite refused a statement: {error} ({name})")
    else:
        mine = StoreUnavailable(f"the SQLite database cannot serve: {reason} ({name})")
    mine.__cause__ = error
    return mine
