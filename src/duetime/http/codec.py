"""JSON in and out: bodies into typed requests, complaints into words, values into bytes.

Decoders are made once for each type and check while they parse. Payload and metadata stay
the bytes that were received (`msgspec.Raw`): they are looked through, never rebuilt.
"""

import re
from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType, inspect
from msgspec.json import Decoder, Encoder

from duetime.errors import InvalidInput
from duetime.http.problems import Headers, Path, Refusal
from duetime.instants import parse_instant

T = TypeVar("T")

encode = Encoder().encode


class Answer(NamedTuple):
    """What goes back: a status, a body and headers beyond its type and length."""

    status: int
    body: bytes
    headers: Headers = ()
    content_type: bytes = b"application/json"


class Body(Generic[T]):
    """Reads one type of request body; `Refusal` says what is wrong with it."""

    def __init__(self, type_: type[T]) -> None:
        self._decoder = Decoder(type_)

    def read(self, body: bytes) -> T:
        # msgspec passes over what it keeps raw without looking at its UTF-8.
        if not body.isascii():
            try:
                body.decode()
            except UnicodeDecodeError:
                raise Refusal("the body is not valid UTF-8") from None
        if not body:
            raise Refusal("the body is empty; it must be a JSON object")
        return self.read_part(body)

    def read_part(self, body: bytes | Raw) -> T:
        """The same for a part of a body whose UTF-8 has been checked."""
        try:
            return self._decoder.decode(body)
        except msgspec.ValidationError as error:
            raise self._in_words(str(error), body) from None
        except msgspec.DecodeError as error:
            reason = str(error).removeprefix("JSON is malformed: ")
            raise Refusal(f"the body is not valid JSON: {reason}") from None
        except RecursionError:
            raise Refusal("the body is nested too deeply") from None

    def _in_words(self, complaint: str, body: bytes | Raw) -> Refusal:
        text, place = _split(complaint)
        path = _path(place)
        if path[-1:] == ("...",):
            return _wrong_headers(path[:-1], body)
        if match := _MISSING.fullmatch(text):
            return Refusal("is required", (*path, match[1]))
        if match := _UNKNOWN.fullmatch(text):
            return Refusal("is not a known field", (*path, match[1]))
        if match := _WRONG_TYPE.fullmatch(text):
            expected, got = (_named(name) for name in match.groups())
            if path:
                return Refusal(f"must be {expected}, not {got}", path)
            return Refusal(f"the body must be {expected}, not {got}")
        if text.startswith("Invalid enum value"):
            return Refusal(f"must be {self._choices(path)}", path)
        problem = f"is not acceptable: {text[:1].lower()}{text[1:]}"
        return Refusal(problem, path) if path else Refusal(f"the body {problem}")

    def _choices(self, path: Path) -> str:
        """What the field at `path` may be. Only top-level fields are literals."""
        struct = inspect.type_info(self._decoder.type)
        assert isinstance(struct, inspect.StructType)
        field = next(field for field in struct.fields if field.encode_name == path[-1])
        values = [str(value) for value in _literals(field.type)]
        return f"{', '.join(values[:-1])} or {values[-1]}"


_MISSING = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_WRONG_TYPE = re.compile(r"Expected `([^`]*)`, got `([^`]*)`")
_PLACE = re.compile(r"(.*) - at `(\$[A-Za-z_.\[\]0-9]*)`", re.DOTALL)
_STEP = re.compile(r"\.([A-Za-z_]+)|\[(\d+|\.\.\.)\]")
_NAMES = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "an object",
    "array": "an array",
    "null": "null",
}


def _literals(type_: inspect.Type) -> Iterator[object]:
    match type_:
        case inspect.Metadata(type=inner):
            yield from _literals(inner)
        case inspect.UnionType(types=members):
            for member in members:
                yield from _literals(member)
        case inspect.LiteralType(values=values):
            yield from values


def _split(complaint: str) -> tuple[str, str]:
    match = _PLACE.fullmatch(complaint)
    return (complaint, "$") if match is None else (match[1], match[2])


def _named(types: str) -> str:
    return " or ".join(_NAMES.get(name, name) for name in types.split(" | "))


def _path(place: str) -> Path:
    return tuple(field or index for field, index in _STEP.findall(place))


def _wrong_headers(path: Path, body: bytes | Raw) -> Refusal:
    """Of an object of strings msgspec does not say which value is none: so look again."""
    try:
        members: bytes | Raw = body
        for name in path:
            members = _members(members)[name]
        for name, value in _members(members).items():
            if not bytes(value).startswith(b'"'):
                return Refusal("must be a string", (*path, name))
    except (msgspec.DecodeError, RecursionError):
        pass  # What follows is broken too, or the name was given twice: it stays unnamed.
    return Refusal("must hold strings only", path)


_members = Decoder(dict[str, Raw]).decode


def instant(text: str, field: str) -> int:
    """The instant in `field` (a core name); InvalidInput if it is none."""
    try:
        return parse_instant(text)
    except ValueError as error:
        raise InvalidInput(str(error), field) from None


_decode_any = Decoder().decode


def kept(
    raw: Raw | UnsetType, field: str, *, bytes_max: int, object_only: bool = False
) -> bytes | None:
    """JSON to keep as it was received; None where it is absent or null."""
    if raw is UNSET:
        return None
    json = bytes(raw)
    if json == b"null":
        return None
    if object_only and not json.startswith(b"{"):
        raise InvalidInput("must be an object", field)
    # The service refuses what is larger; parsing it here would cost many times its size.
    if len(json) <= bytes_max:
        try:
            _decode_any(json)
        except msgspec.DecodeError as error:
            raise InvalidInput(f"is not acceptable JSON: {str(error).lower()}", field) from None
    return json


def kept_change(
    raw: Raw | UnsetType, field: str, *, bytes_max: int, object_only: bool = False
) -> bytes | None | UnsetType:
    """The same for an update: UNSET where it is absent, None where it is null."""
    if raw is UNSET:
        return UNSET
    return kept(raw, field, bytes_max=bytes_max, object_only=object_only)
