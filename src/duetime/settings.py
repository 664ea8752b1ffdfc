"""Where settings come from, and the refusal of what breaks a rule.

Precedence, highest first: command line, environment, `.env`, `duetime.toml`, defaults. A
setting has one name: small in the file (`drain_timeout`), in capitals in the environment
(`DRAIN_TIMEOUT`). Variables of other names are other programs'; an unknown name in
`duetime.toml`, which is ours alone, is refused.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Collection, Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin

from dotenv import dotenv_values
from msgspec import NODEFAULT, Meta
from msgspec.structs import fields

from duetime.config import Config
from duetime.errors import ConfigError
from duetime.instants import parse_duration

SETTINGS_FILE = "duetime.toml"
_WHOLE_NUMBER = re.compile(r"-?\d{1,18}", re.ASCII)
# A name, an IPv4 address, or an IPv6 address in brackets; then perhaps a port.
_ADDRESS = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_SECRETS = ("database_url", "api_key", "cluster_secret", "membership_url")
_WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - they are what is refused.
_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


class Setting(NamedTuple):
    """One field of `Config` as people write it."""

    field: str
    type: Any
    meta: Meta
    default: Any

    @property
    def key(self) -> str:
        """Its name in `duetime.toml`: the field's, without the `s` that says seconds."""
        return "_".join(part for part in self.field.split("_") if part != "s")

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return self.key.upper()

    @property
    def required(self) -> bool:
        return self.default is NODEFAULT

    @property
    def is_duration(self) -> bool:
        return "s" in self.field.split("_")

    @property
    def choices(self) -> tuple[str, ...]:
        return get_args(self.type) if get_origin(self.type) is Literal else ()


def _settings() -> tuple[Setting, ...]:
    described = []
    for field in fields(Config):
        declared, meta = get_args(field.type)
        described.append(Setting(field.name, declared, meta, field.default))
    return tuple(described)


SETTINGS = _settings()
_BY_KEY = {setting.key: setting for setting in SETTINGS}
_BY_FIELD = {setting.field: setting for setting in SETTINGS}


class _Given(NamedTuple):
    value: object
    origin: str


def load(
    flags: Mapping[str, object],
    *,
    environ: Mapping[str, str] = os.environ,
    directory: Path = Path(),
    file: Path | None = None,
    unneeded: Collection[str] = (),
) -> Config:
    """The settings of this process. `ConfigError` has a line for each one that is refused.

    `.env` and `duetime.toml` are looked for in `directory`; `file` takes the latter's place
    and must exist. `flags` are by field; a value of None was not given. A required setting
    that is `unneeded` may be missing and is then empty.
    """
    problems: list[str] = []
    given = _from_file(file or directory / SETTINGS_FILE, problems, must_exist=file is not None)
    given |= _from_variables(_read_dotenv(directory / ".env", problems), ".env")
    given |= _from_variables(environ, "environment")
    for field, value in flags.items():
        if value is not None:
            given[field] = _Given(value, "command line")

    values: dict[str, Any] = {}
    for setting in SETTINGS:
        found = given.get(setting.field)
        if found is not None:
            try:
                values[setting.field] = _checked(setting, _parsed(setting, found.value))
            except ValueError as error:
                shown = "" if setting.field in _SECRETS else f", got {found.value!r}"
                problems.append(f"{setting.variable} {error}{shown} ({found.origin})")
        elif not setting.required:
            values[setting.field] = setting.default
        elif setting.field in unneeded:
            values[setting.field] = ""
        else:
            problems.append(f"{setting.variable} is required. {setting.meta.description}")
    problems += _conflicts(values)
    if problems:
        raise ConfigError("\n".join(problems))
    return Config(**values)


def written(setting: Setting, value: object) -> str:
    """A value as one would write it in the environment."""
    if setting.is_duration and isinstance(value, int):
        unit, seconds = next(each for each in _UNITS if value % each[1] == 0)
        return f"{value // seconds}{unit}" if value else "0s"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(str(part) for part in value)
    return "" if value is None else str(value)


def _from_file(path: Path, problems: list[str], *, must_exist: bool) -> dict[str, _Given]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if must_exist:
            problems.append(f"{path} does not exist")
        return {}
    except OSError as error:
        problems.append(f"{path} cannot be read: {error.strerror}")
        return {}
    except ValueError as error:
        problems.append(f"{path} is not valid TOML: {error}")
        return {}
    given = {}
    for key, value in table.items():
        setting = _BY_KEY.get(key)
        if setting is None:
            near = difflib.get_close_matches(key.lower(), _BY_KEY, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            problems.append(f"{key!r} is not a setting ({path.name}){hint}")
        elif value != "":
            given[setting.field] = _Given(value, path.name)
    return given


def _read_dotenv(path: Path, problems: list[str]) -> Mapping[str, str | None]:
    try:
        # Without interpolation: a key or password that holds `$` means what it says.
        return dotenv_values(path, interpolate=False, encoding="utf-8")
    except OSError as error:
        problems.append(f"{path} cannot be read: {error.strerror}")
    except ValueError:
        problems.append(f"{path} is not UTF-8 text")
    return {}


def _from_variables(variables: Mapping[str, str | None], origin: str) -> dict[str, _Given]:
    # An empty variable is one that was not set: compose files pass those on by the dozen.
    return {
        setting.field: _Given(value, origin)
        for setting in SETTINGS
        if (value := variables.get(setting.variable))
    }


def _parsed(setting: Setting, value: object) -> object:
    """The value in its type. Variables are text; a file and the command line have types."""
    if setting.is_duration:
        if not isinstance(value, str):
            raise ValueError("must be a duration such as 30s, 5m, 24h or 7d")
        seconds, rest = divmod(parse_duration(value), 1000)
        if rest:
            raise ValueError("must be whole seconds")
        return seconds
    if setting.type is bool:
        if isinstance(value, str):
            value = {"true": True, "false": False}.get(value.lower())
        if not isinstance(value, bool):
            raise ValueError("must be true or false")
        return value
    if setting.type is int:
        if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value):
            return int(value)
        if type(value) is not int:
            raise ValueError("must be a whole number")
        return value
    if get_origin(setting.type) is tuple:
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",")]
        if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
            raise ValueError("must be a list of networks")
        return tuple(value)
    if isinstance(value, str):
        return value.lower() if setting.choices else value
    raise ValueError("must be text")


def _checked(setting: Setting, value: Any) -> Any:
    """The value, if it keeps the rule of its field."""
    meta = setting.meta
    if setting.choices and value not in setting.choices:
        raise ValueError(f"must be one of {', '.join(setting.choices)}")
    if meta.ge is not None and meta.le is not None and not meta.ge <= value <= meta.le:
        low, high = written(setting, meta.ge), written(setting, meta.le)
        raise ValueError(f"must be between {low} and {high}")
    if meta.min_length is not None and len(value) < meta.min_length:
        raise ValueError(f"must be at least {meta.min_length} characters, has {len(value)}")
    if meta.pattern is not None and not re.fullmatch(meta.pattern, value):
        raise ValueError("must be printable ASCII without spaces")
    if setting.field == "callback_allow_networks":
        for network in value:
            try:
                ip_network(network)
            except ValueError as error:
                raise ValueError(f"must be a list of networks: {error}") from None
    if setting.field == "cluster_advertise" and not _ADDRESS.fullmatch(value):
        raise ValueError("must be host or host:port")
    if setting.field == "callback_ca_file" and not Path(value).is_file():
        raise ValueError("must be the path of a file")
    return value


def _conflicts(values: Mapping[str, Any]) -> list[str]:
    """What is wrong between settings, each of which is right by itself."""
    problems = []
    for lower, upper in (
        ("in_flight_per_destination_max", "in_flight_max"),
        ("window_page_timers", "window_timers_max"),
        ("payload_bytes_max", "body_bytes_max"),
    ):
        if lower in values and upper in values and values[lower] > values[upper]:
            problems.append(
                f"{_BY_FIELD[lower].variable} must be at most {_BY_FIELD[upper].variable}"
                f" ({values[upper]}), got {values[lower]}"
            )
    if not values.get("cluster_advertise") and values.get("cluster_host") in _WILDCARDS:
        problems.append(
            "CLUSTER_ADVERTISE is required where CLUSTER_HOST is every address"
            f" ({values['cluster_host']}): nobody can be reached there"
        )
    interval_s, timeout_s = (
        values.get(field, 0) for field in ("heartbeat_interval_s", "member_timeout_s")
    )
    if interval_s and timeout_s and timeout_s < 3 * interval_s:
        problems.append(
            f"MEMBER_TIMEOUT must be at least three times HEARTBEAT_INTERVAL ({interval_s}s),"
            f" got {timeout_s}s"
        )
    return problems
