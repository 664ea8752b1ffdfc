"""MySQL's errors, MariaDB's and TiDB's, by the number that the server or the driver gives them."""

from asyncmy.errors import MySQLError

from duetime.stores.sql.errors import Errors

LOST = 2013
"""The driver's own: from 2000 to 2999 no server has spoken."""

_IN_THE_WAY = "other writes were in its way"
_LOST = "the connection was lost"
_STOPPING = "it is shutting down"
_READ_ONLY = "it can only be read: a replica, or set so"
_REFUSED = "it refuses this user or password"
_NO_RIGHT = "this user lacks a right"
_NO_MEMORY = "it has no memory left"
_DISK_FULL = "its disk is full"
_TOO_MANY = "it has too many connections"
_TOO_SLOW = "a statement took longer than statement_timeout"
_NO_ANSWER_BEHIND = "its own storage does not answer"


def _code(error: Exception) -> int | None:
    code = error.args[0] if isinstance(error, MySQLError) and error.args else None
    if code == 0:
        return LOST  # The driver's word for a connection that it has closed itself.
    return code if isinstance(code, int) else None


ERRORS = Errors(
    types=(MySQLError,),
    code=_code,
    conflicts={
        1020: _IN_THE_WAY,  # MariaDB: a row has changed since it was read.
        1213: _IN_THE_WAY,
        # TiDB.
        8002: _IN_THE_WAY,
        8005: _IN_THE_WAY,
        8022: _IN_THE_WAY,
        8028: "its tables have changed meanwhile",
        9007: _IN_THE_WAY,
    },
    gone={
        1053: _STOPPING,
        1077: _STOPPING,
        1152: _LOST,
        1158: _LOST,
        1159: _LOST,
        1160: _LOST,
        1161: _LOST,
        1184: _LOST,
        1290: _READ_ONLY,
        1792: _READ_ONLY,
        1836: _READ_ONLY,
        1927: "somebody ended the connection",
        2003: "it cannot be reached",
        2006: _LOST,
        LOST: _LOST,
        2055: _LOST,
        4031: "it closed an idle connection",
    },
    unavailable={
        1021: _DISK_FULL,
        1037: _NO_MEMORY,
        1038: _NO_MEMORY,
        1040: _TOO_MANY,
        1041: _NO_MEMORY,
        1044: _NO_RIGHT,
        1045: _REFUSED,
        1049: "there is no such database",
        1114: "its disk or a table is full",
        1129: "it refuses this host",
        1130: "it refuses this host",
        1142: _NO_RIGHT,
        1143: _NO_RIGHT,
        1203: _TOO_MANY,
        1205: "a lock was not to be had in time",
        1226: "this user's share of it is used up",
        1227: _NO_RIGHT,
        1317: "somebody ended the statement",
        1665: "its binlog_format is STATEMENT: ROW or MIXED is needed",
        1698: _REFUSED,
        1820: "this user's password has expired",
        1862: "this user's password has expired",
        1969: _TOO_SLOW,
        2026: "TLS failed",
        2059: "it wants a way of logging in that the driver does not know",
        3024: _TOO_SLOW,
        3118: "this user's account is locked",
        3159: "it wants TLS",
        4151: "this user's account is locked",
        # TiDB.
        8027: "its tables have changed, and it does not know how",
        8175: _NO_MEMORY,
        8501: "nobody knows what became of a commit",
        9001: _NO_ANSWER_BEHIND,
        9002: _NO_ANSWER_BEHIND,
        9003: _NO_ANSWER_BEHIND,
        9004: "a lock was not to be had in time",
        9005: _NO_ANSWER_BEHIND,
        9008: _NO_ANSWER_BEHIND,
        9011: _NO_ANSWER_BEHIND,
        9012: _NO_ANSWER_BEHIND,
    },
    there_already=(1050, 1061, 1062),
    no_table=(1146,),
)
