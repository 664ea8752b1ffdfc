"""Logs of the process: `event key=value` on a terminal, JSON lines otherwise, to stderr.

Stdlib logging throughout. A record's message is a fixed event name, its facts go into
`extra`, once, where the thing is handled:

    log = logging.getLogger(__name__)
    log.warning("lease lost", extra={"shard": 3, "version": 17})

On a way walked thousands of times a second ask `log.isEnabledFor(logging.DEBUG)` first: the
answer is cached, the dict is not. Never log headers, payloads, keys or credentials.
"""

import json
import logging
import re
import sys
from typing import Any, Literal, TextIO

from duetime.instants import format_instant

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "color_message",  # uvicorn's copy of its message with terminal colours
}
_PLAIN = re.compile(r"[^\s\"'=\\]+")


def configure(
    level: str,
    format: Literal["auto", "text", "json"],
    *,
    stream: TextIO | None = None,
    worker: int | None = None,
) -> None:
    """Send every logger of the process, libraries' too, through one handler to `stream`.

    Where several processes write to one stream, each of their lines says whose it is.
    """
    stream = sys.stderr if stream is None else stream
    as_text = format == "text" or (format == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(TextFormatter() if as_text else JsonFormatter())
    if worker is not None:
        handler.addFilter(_Marked(worker))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("duetime").setLevel(level.upper())


class _Marked(logging.Filter):
    """Adds the worker's number to each record."""

    def __init__(self, worker: int) -> None:
        super().__init__()
        self._worker = worker

    def filter(self, record: logging.LogRecord) -> bool:
        record.worker = self._worker
        return True


class TextFormatter(logging.Formatter):
    """For people: instant, level, event, then the facts; a traceback on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        facts = "".join(f" {key}={_text(value)}" for key, value in _facts(record).items())
        instant = format_instant(int(record.created * 1000))
        line = f"{instant} {record.levelname.lower():7} {_one_line(record.getMessage())}{facts}"
        trace = _trace(self, record)
        return line if trace is None else f"{line}\n{trace}"


class JsonFormatter(logging.Formatter):
    """For machines: one object to a line, the facts beside the event."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "timestamp": format_instant(int(record.created * 1000)),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "logger": record.name,
            **_facts(record),
        }
        trace = _trace(self, record)
        if trace is not None:
            entry["traceback"] = trace
        return json.dumps(entry, default=str)


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str | None:
    return formatter.formatException(record.exc_info) if record.exc_info else None


def _one_line(text: str) -> str:
    return text if text.isprintable() else json.dumps(text)


def _text(value: object) -> str:
    # Quoted where it is not plain: a timer's id may hold a line break, and must not be able
    # to write a log line of its own.
    text = str(value)
    return text if text.isprintable() and _PLAIN.fullmatch(text) else json.dumps(text)
