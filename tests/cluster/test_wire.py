"""Frames, however they are cut; errors, as what they were; and bytes that are not ours."""

import inspect
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from duetime import errors
from duetime.cluster import wire
from duetime.cluster.hints import NamespacesChanged, ShardsReleased
from duetime.cluster.peers import Cancel, Executing, Get, PeerFailed, Put, Update
from duetime.errors import RequestError, ShardMoved, TimerFinished, Unavailable
from duetime.model import RetryPolicy
from duetime.requests import Changes
from duetime.store import Key
from tests.unit.engine import timer
from tests.unit.test_errors import EACH

KEY = Key(3, "default", "a")
TIMER = timer(
    "a", 5, payload=b'{"x":1}', headers={"X": "y"}, retry=RetryPolicy(max_attempts=3), attempts=2
)


def requests() -> Iterator[RequestError]:
    for error, _ in EACH:
        if isinstance(error, RequestError):
            yield error


def feed(reader: wire.FrameReader, pieces: list[bytes]) -> list[bytes]:
    return [body for piece in pieces for body in reader.feed(piece)]


# -- frames -----------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=50), max_size=8), st.lists(st.integers(0, 400)))
def test_frames_come_out_whole_however_they_were_cut(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(wire.frame, bodies))
    at = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    pieces = [stream[start:end] for start, end in pairwise(at)]
    assert feed(wire.FrameReader(50), pieces) == bodies


@given(st.binary(max_size=200))
def test_bytes_that_are_not_ours_are_refused_or_waited_for(data: bytes) -> None:
    reader = wire.FrameReader(100)
    try:
        for body in reader.feed(data):
            wire.messages_of(body)
    except wire.BadFrame:
        pass
    assert len(reader._buffer) <= 200


@given(st.binary(max_size=100))
def test_a_body_that_is_no_message_is_a_bad_frame(body: bytes) -> None:
    try:
        messages = wire.messages_of(body)
    except wire.BadFrame:
        return
    assert isinstance(messages, list)


def test_a_frame_above_its_bound_is_refused_before_it_is_read() -> None:
    reader = wire.FrameReader(1_000)
    with pytest.raises(wire.BadFrame, match="1001 bytes"):
        feed(reader, [(1_001).to_bytes(4, "big")])


@pytest.mark.parametrize("count", [0, 1, 15, 16, 1_000, wire.FRAME_MESSAGES_MAX])
def test_messages_travel_together(count: int) -> None:
    messages = [wire.Call(n, Get(KEY)) for n in range(count)]
    (body,) = feed(wire.FrameReader(10_000_000), [wire.frame_of(list(map(wire.encode, messages)))])
    assert wire.messages_of(body) == messages


@pytest.mark.parametrize(
    "message",
    [
        wire.Call(1, Put([TIMER, TIMER], again=True)),
        wire.Call(2, Update(KEY, Changes(payload=None, timeout_s=4), "rest")),
        wire.Call(3, Cancel(KEY, again=True)),
        wire.Call(4, Executing("n")),
        wire.Told(ShardsReleased([1, 2])),
        wire.Told(NamespacesChanged()),
        wire.Failed(5, wire.Failure("TimerNotFound", ["n", "i"])),
        wire.Ping(),
        wire.Pong(),
    ],
)
def test_what_is_sent_is_what_arrives(message: wire.Message) -> None:
    (body,) = feed(wire.FrameReader(10_000), [wire.frame_of([wire.encode(message)])])
    assert wire.messages_of(body) == [message]


def test_a_field_that_a_newer_node_has_added_is_passed_over() -> None:
    newer = ["get", {"type": "get", "key": KEY, "since": 5}]
    body = wire.encode([[1, 7, newer[1]]])
    assert wire.messages_of(body) == [wire.Call(7, Get(KEY))]


# -- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize("error", list(requests()), ids=lambda error: type(error).__name__)
def test_an_error_arrives_as_what_it_was(error: RequestError) -> None:
    arrived = wire.error_of(wire.failure_of(error))
    assert type(arrived) is type(error)
    assert (str(arrived), vars(arrived)) == (str(error), vars(error))


def test_no_kind_of_error_is_forgotten() -> None:
    kinds = {
        kind.__name__
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, RequestError) and kind is not RequestError
    }
    assert kinds == set(wire._KINDS)


@pytest.mark.parametrize(
    "failure", [wire.UNFORESEEN, wire.Failure("Newer", [1]), wire.Failure("TimerNotFound", [])]
)
def test_an_error_that_is_not_known_here_is_said_to_be_elsewhere(failure: wire.Failure) -> None:
    assert isinstance(wire.error_of(failure), PeerFailed)


def test_the_answer_to_many_puts_names_those_that_failed() -> None:
    failed = {1: ShardMoved(3), 7: Unavailable("busy", retry_after_s=4)}
    (message,) = wire.messages_of(b"\x91" + wire.answer(9, Put([TIMER]), failed))
    assert isinstance(message, wire.Answer)
    assert isinstance(message.value, Raw)
    arrived = wire.reader_of(Put([]))(message.value)
    assert {index: vars(error) for index, error in arrived.items()} == {
        index: vars(error) for index, error in failed.items()
    }
    assert isinstance(wire.error_of(wire.failure_of(TimerFinished("n", "i", "x"))), TimerFinished)
