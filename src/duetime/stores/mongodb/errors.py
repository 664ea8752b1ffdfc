"""MongoDB's errors as the store's own, by code.

Messages of the server stay out: they quote values, which may be a payload or a header.
"""

from typing import Any

import bson.errors
import msgspec
from pymongo.errors import (
    ClientBulkWriteException,
    ConfigurationError,
    ConnectionFailure,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
)

from duetime.errors import StoreError, StoreUnavailable

DRIVER_ERRORS = (PyMongoError, bson.errors.BSONError, msgspec.MsgspecError)
DUPLICATE_KEY = 11000
UNAUTHORIZED = 13

_CONFLICT = "other writes were in its way"
_NO_PRIMARY = "it is not the primary any more"
_STOPPING = "it is shutting down"
_TIME = "it did not answer in time"
_REFUSES = "it refuses this user or password"
_UNAVAILABLE = {
    11: _REFUSES,
    UNAUTHORIZED: "this user lacks a right",
    18: _REFUSES,
    24: "a lock was not to be had in time",
    50: _TIME,
    64: "a majority did not confirm in time",
    91: _STOPPING,
    112: _CONFLICT,
    134: "it has no majority",
    189: _NO_PRIMARY,
    225: _CONFLICT,
    246: "it was set up a moment ago and has nothing to list yet",
    251: _CONFLICT,
    261: "it has too many transactions",
    262: _TIME,
    290: "a transaction took longer than transactionLifetimeLimitSeconds",
    334: _REFUSES,
    388: "a write is too large for its cache",
    8000: _REFUSES,  # What Atlas says.
    10107: _NO_PRIMARY,
    11600: _STOPPING,
    11602: _NO_PRIMARY,
    13388: "it is being set up anew",
    13435: _NO_PRIMARY,
    13436: _NO_PRIMARY,
    14031: "its disk is full",
}


def unwrapped(error: ClientBulkWriteException) -> PyMongoError:
    """What went wrong with the first of its operations, or with all of them.

    As the driver raises it, it lacks the labels that say whether to try again, and it quotes
    the operation, payload and all.
    """
    if isinstance(error.error, PyMongoError):
        return error.error
    several: list[Any] = [error.error, *(error.write_errors or ())]
    first: dict[str, Any] = next(filter(None, several), {})
    facts: dict[str, Any] = {
        name: first[name] for name in ("codeName", "errorLabels") if name in first
    }
    return OperationFailure("an operation was refused", first.get("code"), facts)


def translated(error: Exception, database: str) -> StoreError:
    """The store's error for one of DRIVER_ERRORS.

    What is not in the table is a defect of ours, or a row that another program has written.
    """
    if isinstance(error, ServerSelectionTimeoutError):
        # What follows is a list of the servers and timeouts, over again.
        reason = str(error).partition(" (configured timeouts")[0].partition(", Timeout:")[0]
        return StoreUnavailable(f"{database}: no server that takes writes was found: {reason}")
    if isinstance(error, OperationFailure):
        known = _UNAVAILABLE.get(error.code or 0)
        if known is not None:
            return StoreUnavailable(f"{database}: {known} ({error.code})")
        name = (error.details or {}).get("codeName") or type(error).__name__
        return StoreError(f"{database}: it refuses a statement ({name}, {error.code})")
    if isinstance(error, bson.errors.BSONError | msgspec.MsgspecError):
        return StoreError(f"{database}: a row cannot be read or written ({type(error).__name__})")
    if isinstance(error, ConnectionFailure):
        reason = _TIME if error.timeout else "the connection was lost"
        return StoreUnavailable(f"{database}: {reason}")
    if isinstance(error, ConfigurationError):  # Of an SRV record, or of a server too old for it.
        return StoreUnavailable(f"{database}: {str(error).splitlines()[0]}")
    return StoreUnavailable(f"{database}: {type(error).__name__}")
