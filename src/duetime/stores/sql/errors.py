"""A driver's errors as the store's own, by a table of its codes.

No message of a driver is repeated: it may quote a payload, or the password.
"""

import ssl
from collections.abc import Callable, Collection, Mapping

import msgspec
from msgspec import Struct

from duetime.errors import StoreError, StoreUnavailable


class Errors(Struct, frozen=True, kw_only=True):
    """What the errors of a driver mean."""

    types: tuple[type[Exception], ...]
    """Those that the driver raises itself."""
    code: Callable[[Exception], int | str | None]
    conflicts: Mapping[int | str, str]
    """Nothing took effect, and the same call may well succeed at once."""
    gone: Mapping[int | str, str]
    """Other connections are likely to be no better: a restart, a failover, a cut."""
    unavailable: Mapping[int | str, str]
    """It cannot serve now."""
    there_already: Collection[int | str]
    """What was to be made: a row of this key, a table, an index."""
    no_table: Collection[int | str]
    """What was to be read."""

    @property
    def caught(self) -> tuple[type[Exception], ...]:
        """Whatever a call may end with that is no defect of ours."""
        # TimeoutError is an OSError.
        return (*self.types, OSError, msgspec.MsgspecError)

    def is_conflict(self, error: Exception) -> bool:
        return self.code(error) in self.conflicts

    def spoils_connections(self, error: Exception) -> bool:
        return isinstance(error, OSError) or self.code(error) in self.gone

    def translated(self, error: Exception, database: str) -> StoreError:
        """The store's error for one of those caught.

        What is in no table is a defect of ours, or a row that another program has written.
        """
        code = self.code(error)
        for table in (self.conflicts, self.gone, self.unavailable):
            if code is not None and code in table:
                return StoreUnavailable(f"{database}: {table[code]} ({code})")
        outside = of_no_code(error, database)
        if outside is not None:
            return outside
        return StoreError(f"{database}: it refused what it was asked ({_named(error, code)})")


def of_no_code(error: Exception, database: str) -> StoreError | None:
    """What went wrong on the way to a server, or with a row of its."""
    if isinstance(error, msgspec.MsgspecError):
        return StoreError(f"{database}: a row cannot be read ({type(error).__name__})")
    if isinstance(error, ssl.SSLError):
        return StoreUnavailable(f"{database}: TLS failed: {error.reason or error}")
    if isinstance(error, TimeoutError):
        return StoreUnavailable(f"{database}: it did not answer in time")
    if isinstance(error, OSError):
        return StoreUnavailable(f"{database}: it cannot be reached: {error.strerror or error}")
    return None


def _named(error: Exception, code: int | str | None) -> str:
    name = type(error).__name__
    return name if code is None else f"{name}, {code}"
