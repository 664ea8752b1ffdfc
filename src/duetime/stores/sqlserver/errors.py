"""SQL Server's errors by their number, its driver's and ODBC's by their SQLSTATE.

pyodbc is not imported here: without a library of the system it cannot be.
"""

import re

from duetime.stores.sql.errors import Errors

_IN_THE_WAY = "other writes were in its way"
_LOST = "the connection was lost"
_UNREACHABLE = "it cannot be reached"
_NO_DATABASE = "there is no such database, or this user may not use it"
_STOPPING = "it is starting or shutting down"
_MOVING = "it is being moved, or is not there now"
_NO_RIGHT = "this user lacks a right"
_DISK_FULL = "its disk or a file is full"
_NO_MEMORY = "it has no memory left"
_BUSY = "it has more to do than it is allowed to"
_TOO_SLOW = "a statement took longer than statement_timeout"
NO_DRIVER = "its ODBC driver is not installed: install the system's package msodbcsql18"

# "[42000] [Microsoft][...][SQL Server]... (1205) (SQLExecDirectW)"
_NUMBER = re.compile(r"\((\d+)\) \(SQL[A-Za-z]+\)")
_OWN_STATES = ("01", "08", "HYT", "IM")
"""Of the driver, and of the driver manager: what number they give is the system's."""
_CONFLICTS: dict[int | str, str] = {
    1205: _IN_THE_WAY,
    2601: _IN_THE_WAY,  # Of two first claims of a shard the second.
    2627: _IN_THE_WAY,
    3960: _IN_THE_WAY,
}
_GONE: dict[int | str, str] = {
    "08001": _UNREACHABLE,
    "08S01": _LOST,
    "08003": _LOST,
    "08004": _UNREACHABLE,
    "08007": _LOST,
    "HYT01": _LOST,
    596: "somebody ended the connection",
    3906: "it can only be read: a replica, or set so",
    6005: _STOPPING,
    17142: _STOPPING,
    17148: _STOPPING,
    18401: _STOPPING,
    40197: _MOVING,
    40613: _MOVING,
}
_UNAVAILABLE: dict[int | str, str] = {
    "01000": NO_DRIVER,
    "IM002": NO_DRIVER,
    "IM003": NO_DRIVER,
    "HYT00": _TOO_SLOW,
    229: _NO_RIGHT,
    262: _NO_RIGHT,
    297: _NO_RIGHT,
    701: _NO_MEMORY,
    802: _NO_MEMORY,
    8645: _NO_MEMORY,
    1101: _DISK_FULL,
    1105: _DISK_FULL,
    9002: _DISK_FULL,
    1222: "a lock was not to be had in time",
    2760: _NO_RIGHT,
    4060: _NO_DATABASE,
    10928: _BUSY,
    10929: _BUSY,
    17809: "it has too many connections",
    18452: "it refuses this user or password",
    18456: "it refuses this user or password",
    18470: "this user's account is disabled",
    18486: "this user's account is locked",
    18487: "this user's password has expired",
    18488: "this user's password has expired",
    40501: _BUSY,
    40544: _DISK_FULL,
}


def errors(type_: type[Exception]) -> Errors:
    """What those of this type, which is pyodbc's, mean."""
    return Errors(
        types=(type_,),
        code=_code,
        conflicts=_CONFLICTS,
        gone=_GONE,
        unavailable=_UNAVAILABLE,
        # Of a row; of a table; of an index.
        there_already=(2601, 2627, 2714, 1913),
        no_table=(208,),
    )


def _code(error: Exception) -> int | str | None:
    if isinstance(error, OSError) or len(error.args) != 2:
        return None
    state, said = map(str, error.args)
    number = _NUMBER.search(said)
    if number is None or state.startswith(_OWN_STATES) or int(number[1]) == 0:
        return state
    return int(number[1])
