"""Logs: one line for each event, whatever the values hold."""

import io
import json
import logging
import os
from collections.abc import Iterator

import pytest

from duetime import logs

log = logging.getLogger("duetime.somewhere")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _loggers_as_they_were() -> Iterator[None]:
    root, own = logging.getLogger(), logging.getLogger("duetime")
    before = root.handlers[:], root.level, own.level
    yield
    for handler in root.handlers[:]:
        root.removeHandler(handler)
    for handler in before[0]:
        root.addHandler(handler)
    root.setLevel(before[1])
    own.setLevel(before[2])


def as_text(level: str = "debug") -> io.StringIO:
    stream = io.StringIO()
    logs.configure(level, "text", stream=stream)
    return stream


def as_json(level: str = "debug") -> io.StringIO:
    stream = io.StringIO()
    logs.configure(level, "json", stream=stream)
    return stream


def test_text_is_instant_level_event_and_facts() -> None:
    stream = as_text()
    log.warning("lease lost", extra={"shard": 3, "owner": "node a", "id": "x=y"})
    instant, rest = stream.getvalue().split(" ", 1)
    assert len(instant) == len("2026-01-31T09:30:00.000Z")
    assert rest == 'warning lease lost shard=3 owner="node a" id="x=y"\n'


def test_json_is_one_object_to_a_line() -> None:
    stream = as_json()
    log.info("listening", extra={"url": "http://127.0.0.1:1", "shards": 16, "none": None})
    entry = json.loads(stream.getvalue())
    assert entry.pop("timestamp").endswith("Z")
    assert entry == {
        "level": "info",
        "event": "listening",
        "logger": "duetime.somewhere",
        "url": "http://127.0.0.1:1",
        "shards": 16,
        "none": None,
    }


@pytest.mark.parametrize(
    "hostile", ["a\nb", "a\r\nb", "a\u2028b", 'a"b', "a\x1b[31mb", "", "\u202eb"]
)
def test_a_value_cannot_write_a_line_of_its_own(hostile: str) -> None:
    text = as_text()
    log.info("timer fired", extra={"id": hostile})
    assert text.getvalue().rstrip("\n").isprintable()
    lines = as_json()
    log.info("timer fired", extra={"id": hostile})
    assert json.loads(lines.getvalue())["id"] == hostile
    assert lines.getvalue().count("\n") == 1


def test_a_message_of_a_library_stays_on_its_line() -> None:
    stream = as_text()
    logging.getLogger("uvicorn.error").error("two\nlines %s", "here")
    assert stream.getvalue().endswith(' error   "two\\nlines here"\n')


def test_automatic_is_text_on_a_terminal_and_json_otherwise() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    logs.configure("info", "auto", stream=terminal)
    log.info("listening")
    logs.configure("info", "auto", stream=pipe)
    log.info("listening")
    assert terminal.getvalue().endswith(" info    listening\n")
    assert json.loads(pipe.getvalue())["event"] == "listening"


def test_the_level_is_ours_and_libraries_speak_from_warning_on() -> None:
    stream = as_text("info")
    library = logging.getLogger("uvicorn.error")
    log.debug("timer fired")
    library.info("Started server process")
    assert stream.getvalue() == ""
    log.info("listening")
    library.warning("Invalid HTTP request received.")
    assert stream.getvalue().count("\n") == 2


def test_facts_that_uvicorn_means_for_a_terminal_are_left_out() -> None:
    stream = as_text()
    logging.getLogger("uvicorn.error").error("x", extra={"color_message": "\x1b[1mx"})
    assert stream.getvalue().endswith(" error   x\n")


def test_an_exception_keeps_its_traceback() -> None:
    text = as_text()
    try:
        os.environ["GONE"]
    except KeyError:
        log.exception("unexpected")
        lines = as_json()
        log.exception("unexpected")
    first, *trace = text.getvalue().splitlines()
    assert first.endswith(" error   unexpected")
    assert trace[-1] == "KeyError: 'GONE'"
    assert json.loads(lines.getvalue())["traceback"].endswith("KeyError: 'GONE'")
