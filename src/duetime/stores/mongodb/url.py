"""`DATABASE_URL` of a MongoDB. Its options are the driver's own: TLS, timeouts, the pool.

No message repeats more of it than an option's name: whoever forgets to escape a password
moves it into the host, the database or the options.
"""

import re
import warnings
from typing import Any

import pymongo
from msgspec import Struct
from pymongo.errors import PyMongoError
from pymongo.uri_parser import parse_uri

from duetime.errors import ConfigError

FORM = "mongodb://user:password@host:27017/database"
POOL_SIZE_MIN = 4
DEFAULTS: dict[str, Any] = {
    "maxPoolSize": 16,
    "connectTimeoutMS": 5_000,
}
SEARCH_S_DEFAULT = 5.0  # Most elections are over by then.
CALL_S_DEFAULT, CALL_S_MIN, CALL_S_MAX = 30.0, 1.0, 3_600.0


class Address(Struct, frozen=True, kw_only=True):
    """What the URL says."""

    url: str
    name: str
    """For messages: hosts and database."""
    database: str
    options: dict[str, Any]
    """For the driver, beside the URL."""
    pool_size: int
    search_s_max: float
    """How long a server that takes writes is waited for: `serverSelectionTimeoutMS`."""
    call_s_max: float
    """How long a call may take: `timeoutMS`."""


def parse(url: str) -> Address:
    """`ConfigError` says what is wrong with it. No name is looked up."""
    scheme, _, rest = url.partition("://")
    where, _, query = rest.partition("?")
    hosts, _, database = where.rpartition("@")[2].partition("/")
    try:
        found = parse_uri(f"mongodb://{where}", warn=False)
    except (PyMongoError, ValueError):
        found = None
    if found is None or not found["database"] or found["collection"] or "@" in query:
        raise _refused(
            f"must have the form {FORM}, where the user's and the password's / ? # @ : and %"
            " are written %2F %3F %23 %40 %3A and %25"
        )
    if scheme.lower() == "mongodb+srv":
        if ":" in hosts or "," in hosts:
            raise _refused("must have one host and no port, as mongodb+srv://host/database")
        # What the record says is not known yet; but for this, both schemes are alike.
        query = "&".join(it for it in query.split("&") if not it.lower().startswith("srv"))
    given = _options(where, query)
    options = {name: value for name, value in DEFAULTS.items() if name.lower() not in given}
    pool_size = given.get("maxpoolsize", DEFAULTS["maxPoolSize"])
    if pool_size < POOL_SIZE_MIN:
        raise _refused(f"must have {POOL_SIZE_MIN} or more as maxPoolSize")
    call_s_max = given.get("timeoutms", CALL_S_DEFAULT)
    if not CALL_S_MIN <= call_s_max <= CALL_S_MAX:
        raise _refused("must have 1000 to 3600000 as timeoutMS")
    return Address(
        url=f"{scheme.lower()}://{rest}",
        name=f"{hosts}/{database}",
        database=found["database"],
        options=options,
        pool_size=pool_size,
        search_s_max=given.get("serverselectiontimeoutms", SEARCH_S_DEFAULT),
        call_s_max=call_s_max,
    )


def _options(where: str, query: str) -> dict[str, Any]:
    """By their names in lower case, and valid."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            options = parse_uri(f"mongodb://{where}?{query}", warn=False)["options"]
    except (PyMongoError, ValueError, TypeError, OSError, Warning):
        raise _refused(_problem(query)) from None
    return {name.lower(): value for name, value in options.items()}


def _problem(query: str) -> str:
    for option in query.split("&"):
        try:
            parse_uri(f"mongodb://host/?{option}", warn=False)
        except (PyMongoError, ValueError, TypeError, OSError):
            name = option.partition("=")[0]
            named = f" {name!r}" if re.fullmatch("[A-Za-z]{1,40}", name) else ""
            return f"has an option{named} that the driver (pymongo {pymongo.version}) refuses"
    return "has options that contradict each other"


def _refused(problem: str) -> ConfigError:
    return ConfigError(f"DATABASE_URL {problem}")
