"""Bytes between nodes: frames of messages, and errors that arrive as what they were.

A frame is four bytes of length, big-endian, and a msgpack array of messages. A message is
encoded when it is queued, and a frame is put together of what is queued when it is sent: so
what a message costs is known before, and is paid once.

Fields may be added to what travels, as long as they have defaults: nodes of two versions then
understand each other, as they must during a rolling upgrade.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from struct import Struct as Packed
from typing import Any

import msgspec
from msgspec import Raw, Struct

from duetime import errors
from duetime.cluster.hints import Hint
from duetime.cluster.peers import (
    Cancel,
    Drain,
    Executing,
    ExecutingTimers,
    Get,
    Operation,
    PeerFailed,
    Put,
    Update,
)
from duetime.errors import RequestError
from duetime.model import Timer, View

FRAME_BYTES_MAX = 64 * 1024 * 1024
"""More than the largest timer that any settings allow."""
FRAME_BYTES = 256 * 1024
"""A frame takes in no further message from here on."""
FRAME_MESSAGES_MAX = 4_096

_LENGTH = Packed(">I")


class BadFrame(Exception):
    """These bytes are not ours: the connection that brought them is not worth keeping."""


class Call(Struct, frozen=True, gc=False, array_like=True, tag=1):
    """Do this. Numbers go up."""

    number: int
    operation: Operation


class Answer(Struct, frozen=True, gc=False, array_like=True, tag=2):
    """What came of the call of that number."""

    number: int
    value: Raw


class Failure(Struct, frozen=True, gc=False, array_like=True):
    """An error by the name of its class and the arguments that make it; no name: unforeseen."""

    kind: str
    facts: list[Any]


class Failed(Struct, frozen=True, gc=False, array_like=True, tag=3):
    """Why the call of that number was not done."""

    number: int
    failure: Failure


class Told(Struct, frozen=True, gc=False, array_like=True, tag=4):
    """A hint."""

    hint: Hint


class Ping(Struct, frozen=True, gc=False, array_like=True, tag=5):
    """Say something, so that I know you are there."""


class Pong(Struct, frozen=True, gc=False, array_like=True, tag=6):
    """Here I am."""


Message = Call | Answer | Failed | Told | Ping | Pong

encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Message]).decode


class FrameReader:
    """Cuts what arrives into frames' bodies. Holds at most one unfinished frame."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The bodies that are complete now. `BadFrame` at one that is too large."""
        buffer = self._buffer
        buffer += data
        at = 0
        try:
            while len(buffer) - at >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(buffer, at)
                if length > self.bytes_max:
                    raise BadFrame(f"a frame of {length} bytes")
                end = at + _LENGTH.size + length
                if end > len(buffer):
                    break
                body = bytes(memoryview(buffer)[at + _LENGTH.size : end])
                at = end
                yield body
        finally:
            del buffer[:at]


def frame(body: bytes) -> bytes:
    """One body with its length."""
    return _LENGTH.pack(len(body)) + body


def frame_of(messages: Sequence[bytes]) -> bytes:
    """Encoded messages, together."""
    count = len(messages)
    head = bytes((0x90 | count,)) if count < 16 else b"\xdc" + count.to_bytes(2, "big")
    length = len(head) + sum(map(len, messages))
    return b"".join((_LENGTH.pack(length), head, *messages))


def messages_of(body: bytes) -> list[Message]:
    """What `frame_of` put together. `BadFrame`."""
    try:
        return _decode(body)
    except (msgspec.DecodeError, RecursionError, OverflowError) as error:
        raise BadFrame(str(error)) from None


# -- errors -----------------------------------------------------------------------------------


def _arguments(kind: type[RequestError]) -> tuple[tuple[str, bool], ...]:
    """What the error is made of: the names of its facts, and whether they go by name."""
    parameters = list(inspect.signature(kind.__init__).parameters.values())[1:]
    return tuple((each.name, each.kind is each.KEYWORD_ONLY) for each in parameters)


def _kinds(root: type[RequestError]) -> Iterator[type[RequestError]]:
    for kind in root.__subclasses__():
        if kind.__module__ == errors.__name__:
            yield kind
            yield from _kinds(kind)


_KINDS = {kind.__name__: (kind, _arguments(kind)) for kind in _kinds(RequestError)}


def failure_of(error: RequestError) -> Failure:
    """The error, to be sent."""
    name = type(error).__name__
    _, arguments = _KINDS[name]
    return Failure(name, [getattr(error, argument) for argument, _ in arguments])


UNFORESEEN = Failure("", [])


def error_of(failure: Failure) -> Exception:
    """The error that was sent; `PeerFailed` where the other node knows one that we do not."""
    found = _KINDS.get(failure.kind)
    if found is None or len(found[1]) != len(failure.facts):
        return PeerFailed()
    kind, arguments = found
    facts = list(zip(arguments, failure.facts, strict=True))
    by_name = {name: fact for (name, is_named), fact in facts if is_named}
    return kind(*(fact for (_, is_named), fact in facts if not is_named), **by_name)


# -- answers ----------------------------------------------------------------------------------

Reader = Callable[[bytes], Any]


def _reader(answer: Any) -> Reader:
    return msgspec.msgpack.Decoder(answer).decode


_read_failures = _reader(dict[int, Failure])


def _read_put(value: bytes) -> dict[int, Exception]:
    return {index: error_of(failure) for index, failure in _read_failures(value).items()}


_READERS: dict[type[Operation], Reader] = {
    Put: _read_put,
    Get: _reader(View),
    Update: _reader(View),
    Cancel: _reader(View),
    Executing: _reader(list[bytes]),
    ExecutingTimers: _reader(list[Timer]),
    Drain: _reader(None),
}


def reader_of(operation: Operation) -> Reader:
    """What reads the answer to this operation."""
    return _READERS[type(operation)]


def answer(number: int, operation: Operation, value: Any) -> bytes:
    """The answer to a call, encoded."""
    if isinstance(operation, Put):
        value = {index: failure_of(error) for index, error in value.items()}
    return encode(Answer(number, Raw(encode(value))))
