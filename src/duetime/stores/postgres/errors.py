"""PostgreSQL's errors as the store's own, by SQLSTATE.

Messages that quote a value stay out: it may be a payload or a header.
"""

import ssl

import asyncpg
import msgspec

from duetime.errors import StoreError, StoreUnavailable

DRIVER_ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    msgspec.MsgspecError,
    OSError,  # TimeoutError is one of them.
)

_CONFLICTS = {
    "40001": "other writes were in its way",
    "40P01": "other writes were in its way",
}
_GONE = {
    "08": "the connection was lost",
    "25006": "it can only be read: a standby, or set so",
    "25P03": "it ended a transaction that had stood still",
    "57P01": "it is shutting down",
    "57P02": "it stopped after a crash of its own",
    "57P03": "it does not take connections now",
    "57P04": "the database was dropped",
    "57P05": "it closed an idle connection",
}
_UNAVAILABLE = {
    **_CONFLICTS,
    **_GONE,
    "28": "it refuses this user or password",
    "3D000": "there is no such database",
    "42501": "this user lacks a right",
    "53": "it has run out of something",
    "53100": "its disk is full",
    "53200": "it has no memory left",
    "53300": "it has too many connections",
    "55P03": "a lock was not to be had in time",
    "57014": "a statement took longer than statement_timeout",
    "58": "reading or writing its files failed",
    "XX001": "its files are damaged",
    "XX002": "its files are damaged",
}


_QUOTE_VALUES = ("22", "23")  # The classes whose messages do.


def is_conflict(error: Exception) -> bool:
    """Whether nothing took effect, and the same call may well succeed at once."""
    return _sqlstate(error) in _CONFLICTS


def spoils_connections(error: Exception) -> bool:
    """Whether other connections are likely to be no better: a restart, a failover, a cut."""
    return isinstance(error, OSError) or _listed(_GONE, _sqlstate(error)) is not None


def translated(error: Exception, database: str) -> StoreError:
    """The store's error for one of DRIVER_ERRORS.

    What is not in the table is a defect of ours, or a row that another program has written.
    """
    if isinstance(error, asyncpg.PostgresError):
        sqlstate = _sqlstate(error)
        reason = _listed(_UNAVAILABLE, sqlstate)
        if reason is not None:
            return StoreUnavailable(f"{database}: {reason} ({sqlstate})")
        message = "" if sqlstate.startswith(_QUOTE_VALUES) else f"{error.args[0]} "
        return StoreError(f"{database}: {message}({type(error).__name__}, {sqlstate})")
    if isinstance(error, msgspec.MsgspecError):
        return StoreError(f"{database}: a row cannot be read ({type(error).__name__})")
    if isinstance(error, ssl.SSLError):
        return StoreUnavailable(f"{database}: TLS failed: {error.reason or error}")
    if isinstance(error, TimeoutError):
        return StoreUnavailable(f"{database}: it did not answer in time")
    if isinstance(error, OSError):
        return StoreUnavailable(f"{database}: it cannot be reached: {error.strerror or error}")
    return StoreUnavailable(f"{database}: {str(error).splitlines()[0]}")  # A hint may follow.


def _sqlstate(error: Exception) -> str:
    return getattr(error, "sqlstate", None) or ""


def _listed(table: dict[str, str], sqlstate: str) -> str | None:
    """By the whole code, else by its class."""
    return table.get(sqlstate) or table.get(sqlstate[:2])
