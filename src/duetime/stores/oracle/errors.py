"""Oracle's errors and its driver's, by the code that each begins with."""

import oracledb

from duetime.stores.sql.errors import Errors

_IN_THE_WAY = "other writes were in its way"
_LOST = "the connection was lost"
_STOPPING = "it is starting or shutting down"
_UNREACHABLE = "it cannot be reached"
_NO_SERVICE = "its listener knows no such service"
_NO_LOCK = "a lock was not to be had in time"
_DISK_FULL = "its disk or a tablespace is full"
_NO_QUOTA = "this user's share of a tablespace is used up"
_NO_MEMORY = "it has no memory left"
_TOO_MANY = "it has too many connections"
_NO_RIGHT = "this user lacks a right"


def _code(error: Exception) -> str | None:
    cause = error.args[0] if isinstance(error, oracledb.Error) and error.args else None
    return getattr(cause, "full_code", None) or None


ERRORS = Errors(
    types=(oracledb.Error,),
    code=_code,
    conflicts={
        "ORA-00001": _IN_THE_WAY,  # Of two first claims of a shard the second.
        "ORA-00060": _IN_THE_WAY,
        "ORA-08177": _IN_THE_WAY,
    },
    gone={
        "ORA-00028": "somebody ended the connection",
        "ORA-01012": _LOST,
        "ORA-01033": _STOPPING,
        "ORA-01034": "it does not run",
        "ORA-01089": _STOPPING,
        "ORA-01090": _STOPPING,
        "ORA-01092": _LOST,
        "ORA-02396": "it closed an idle connection",
        "ORA-03113": _LOST,
        "ORA-03114": _LOST,
        "ORA-03135": _LOST,
        "ORA-12514": _NO_SERVICE,
        "ORA-12528": _STOPPING,
        "ORA-12537": _LOST,
        "ORA-12541": "nothing listens there",
        "ORA-16000": "it can only be read: a standby, or opened so",
        "DPY-1001": _LOST,
        "DPY-4011": _LOST,
        "DPY-6000": "its listener refuses the connection",
        "DPY-6001": _NO_SERVICE,
        "DPY-6005": _UNREACHABLE,
    },
    unavailable={
        "ORA-00018": _TOO_MANY,
        "ORA-00020": _TOO_MANY,
        "ORA-00054": _NO_LOCK,
        "ORA-00257": _DISK_FULL,
        "ORA-00439": "its edition has no partitions, which its tables need",
        "ORA-01013": "somebody ended the statement",
        "ORA-01017": "it refuses this user or password",
        "ORA-01031": _NO_RIGHT,
        "ORA-01045": _NO_RIGHT,
        "ORA-01536": _NO_QUOTA,
        "ORA-01555": "a list took longer than it keeps what has changed since",
        "ORA-01653": _DISK_FULL,
        "ORA-01654": _DISK_FULL,
        "ORA-01683": _DISK_FULL,
        "ORA-01688": _DISK_FULL,
        "ORA-01691": _DISK_FULL,
        "ORA-01950": _NO_QUOTA,
        "ORA-02391": _TOO_MANY,
        "ORA-04031": _NO_MEMORY,
        "ORA-04036": _NO_MEMORY,
        "ORA-12516": _TOO_MANY,
        "ORA-12519": _TOO_MANY,
        "ORA-12520": _TOO_MANY,
        "ORA-28000": "this user's account is locked",
        "ORA-28001": "this user's password has expired",
        "ORA-30006": _NO_LOCK,
        "ORA-30036": _DISK_FULL,
        "DPY-3001": "it wants what only Oracle's own client can do",
        "DPY-3010": "it is too old for the driver",
        "DPY-3015": "it keeps this user's password in a way that is too old for the driver",
        "DPY-4024": "a statement took longer than statement_timeout",
    },
    # Of an index: of this name, or of these columns.
    there_already=("ORA-00001", "ORA-00955", "ORA-01408"),
    no_table=("ORA-00942",),
)
