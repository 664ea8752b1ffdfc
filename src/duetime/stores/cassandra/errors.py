"""The driver's errors as the store's own.

Messages of the server stay out where they may quote a value: it may be a payload or a header.
"""

import cassandra
import msgspec
from cassandra import cluster, connection, protocol

from duetime.errors import StoreError, StoreUnavailable

DRIVER_ERRORS = (
    cassandra.DriverException,
    cluster.NoHostAvailable,
    connection.ConnectionException,
    protocol.ErrorMessage,
    msgspec.MsgspecError,
    OSError,
)

# Most special first. What is not here is a defect of ours, or a row of another program.
_UNAVAILABLE: tuple[tuple[type[Exception], str], ...] = (
    (cassandra.AuthenticationFailed, "it refuses this user or password"),
    (cassandra.Unauthorized, "this user lacks a right"),
    (cassandra.Unavailable, "too few replicas are alive"),
    (cassandra.Timeout, "too few replicas answered in time"),
    (cassandra.OperationTimedOut, "it did not answer in time"),
    (cassandra.CoordinationFailure, "a replica failed"),
    (protocol.OverloadedErrorMessage, "it is overloaded"),
    (protocol.IsBootstrappingErrorMessage, "it is starting"),
    (protocol.TruncateError, "a table could not be emptied"),
    (protocol.ServerError, "it failed"),
    (connection.ConnectionException, "the connection was lost"),
    (cluster.NoHostAvailable, "it cannot be reached"),
    (OSError, "it cannot be reached"),
)


def translated(error: Exception, database: str) -> StoreError:
    """The store's error for one of DRIVER_ERRORS."""
    error = _cause(error)
    for kind, reason in _UNAVAILABLE:
        if isinstance(error, kind):
            return StoreUnavailable(f"{database}: {reason} ({type(error).__name__})")
    return StoreError(
        f"{database}: a statement or a row is not as it should be ({type(error).__name__})"
    )


def _cause(error: Exception) -> Exception:
    """Of an error for all hosts together, why the first refused."""
    if isinstance(error, cluster.NoHostAvailable) and isinstance(error.errors, dict):
        for of_host in error.errors.values():
            if isinstance(of_host, Exception):
                return of_host
    return error
