"""DynamoDB's errors as the store's own, by their codes.

Its messages stay out: some quote what they were sent, which may be a payload or a header.
"""

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    HTTPClientError,
    NoCredentialsError,
    PartialCredentialsError,
    ReadTimeoutError,
    SSLError,
)
from botocore.exceptions import ConnectionError as NotConnected

from duetime.errors import StoreError, StoreUnavailable

DRIVER_ERRORS = (BotoCoreError, ClientError, OSError)  # TimeoutError is one of the last.

FAILED = "ConditionalCheckFailed"
_PASSING = {
    "InternalServerError": "it failed",
    "LimitExceededException": "it makes too many tables at once",
    "ProvisionedThroughputExceeded": "it is throttled",
    "ProvisionedThroughputExceededException": "it is throttled",
    "RequestLimitExceeded": "it is throttled",
    "ServiceUnavailable": "it cannot serve now",
    "ThrottlingError": "it is throttled",
    "ThrottlingException": "it is throttled",
    "TransactionConflict": "other writes were in its way",
    "TransactionConflictException": "other writes were in its way",
    "TransactionInProgressException": "the same write is still under way",
}
"""The same request may well succeed soon."""
_UNAVAILABLE = {
    **_PASSING,
    "AccessDeniedException": "this identity lacks a right",
    "ExpiredTokenException": "the credentials have expired",
    "IncompleteSignatureException": "it refuses these credentials",
    "InvalidSignatureException": "it refuses these credentials",
    "ItemCollectionSizeLimitExceeded": "a shard has reached the 10 GB that one can hold",
    "ItemCollectionSizeLimitExceededException": "a shard has reached the 10 GB that one can hold",
    "MissingAuthenticationTokenException": "it refuses these credentials",
    "ResourceInUseException": "a table is being made or deleted",
    "ResourceNotFoundException": "a table is missing",
    "UnrecognizedClientException": "it refuses these credentials",
}


class TableMissing(StoreUnavailable):
    """A table is not there, or not yet."""


class TableThere(StoreUnavailable):
    """A table that was to be made is there, or is being made."""


def is_passing(error: Exception) -> bool:
    """Whether to send the same request again: nothing took effect, or it may and that does no harm.

    A write carries a token, by which it takes effect once however often it is sent.
    """
    if isinstance(error, ClientError):
        codes = set(reasons(error)) - {"None"} or {_code(error)}
        return codes <= _PASSING.keys() or _status(error) >= 500
    return isinstance(error, HTTPClientError | NotConnected)


def reasons(error: Exception) -> list[str]:
    """Of a canceled transaction, what each of its actions says: `None` or a code."""
    if not isinstance(error, ClientError):
        return []
    return [reason["Code"] for reason in error.response.get("CancellationReasons", [])]


def translated(error: Exception, database: str) -> StoreError:
    """The store's error for one of DRIVER_ERRORS.

    What is not in the table is a defect of ours, or an item that another program has written.
    """
    if isinstance(error, ClientError):
        codes = [code for code in reasons(error) if code != "None"] or [_code(error)]
        for code in codes:
            if code in _UNAVAILABLE:
                return _TYPES.get(code, StoreUnavailable)(
                    f"{database}: {_UNAVAILABLE[code]} ({code})"
                )
        if _status(error) >= 500:
            return StoreUnavailable(f"{database}: it failed ({codes[0]})")
        return StoreError(f"{database}: it refuses a request ({codes[0]})")
    if isinstance(error, NoCredentialsError | PartialCredentialsError):
        return StoreUnavailable(
            f"{database}: no credentials were found: not in DATABASE_URL, the environment,"
            " ~/.aws, nor where AWS gives them to its machines"
        )
    if isinstance(error, ConnectTimeoutError | ReadTimeoutError | TimeoutError):
        return StoreUnavailable(f"{database}: it did not answer in time")
    if isinstance(error, SSLError):
        return StoreUnavailable(f"{database}: TLS failed")
    return StoreUnavailable(f"{database}: it cannot be reached ({type(error).__name__})")


_TYPES: dict[str, type[StoreUnavailable]] = {
    "ResourceInUseException": TableThere,
    "ResourceNotFoundException": TableMissing,
}


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", "unknown"))


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
