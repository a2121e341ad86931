"""Structured logs, one JSON object a line, or text that is coloured on a terminal.

Lines are about trouble, so most servers write none; but one has to be possible when memory or file
descriptors are short. So this is loaded with the server and is small: the library that did it
before took 5 MiB and 60 ms in the first second of every server.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TextIO

from headwater.core.clock import SystemClock
from headwater.core.units import MS_PER_S

_COLOURS: Final = {"debug": "\x1b[32m", "info": "\x1b[32m", "warning": "\x1b[33m"}
_RED, _DIM, _PLAIN = "\x1b[31m", "\x1b[2m", "\x1b[0m"
_EVENT_WIDTH: Final = 30
_clock: Final = SystemClock()


class LogLine(NamedTuple):
    logger: str
    level: str
    event: str
    facts: Mapping[str, Any]
    error: BaseException | None
    """Its traceback belongs to the line."""


class LineWriter:
    """Where lines go, and how they look."""

    def __init__(self, stream: TextIO, *, as_json: bool) -> None:
        self._stream = stream
        self._render = _as_json if as_json else _as_text

    def __call__(self, line: LogLine) -> None:
        stream = self._stream
        moment = datetime.fromtimestamp(_clock.wall_ms() / MS_PER_S, UTC).replace(tzinfo=None)
        timestamp = moment.isoformat(timespec="milliseconds") + "Z"
        stream.write(self._render(timestamp, line, stream.isatty()) + "\n")
        stream.flush()


def _as_json(timestamp: str, line: LogLine, _colours: bool) -> str:
    told = {**line.facts, "event": line.event, "level": line.level, "logger": line.logger}
    told["timestamp"] = timestamp
    if line.error is not None:
        told["exception"] = _traceback(line.error)
    return json.dumps(told, default=repr)


def _as_text(timestamp: str, line: LogLine, colours: bool) -> str:
    colour, dim, plain = _COLOURS.get(line.level, _RED), _DIM, _PLAIN
    if not colours:
        colour = dim = plain = ""
    level, event = line.level.ljust(9), line.event.ljust(_EVENT_WIDTH)
    trace = "" if line.error is None else "\n" + _traceback(line.error)
    return f"{dim}{timestamp}{plain} [{colour}{level}{plain}] {event}{_facts(line)}{trace}"


def _shown(value: object) -> str:
    """A text that would break the line, or end before its end, is quoted."""
    if isinstance(value, str) and value.isprintable() and not set(value) & set(" ='\""):
        return value
    return repr(value)


def _to_python(line: LogLine) -> None:
    """For programs in which Headwater is a library: where their other lines go."""
    facts = _facts(line)
    level = logging.getLevelNamesMapping()[line.level.upper()]
    logging.getLogger(line.logger).log(level, "%s%s", line.event, facts, exc_info=line.error)


def _facts(line: LogLine) -> str:
    return "".join(f" {name}={_shown(value)}" for name, value in line.facts.items())


def _traceback(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)).rstrip("\n")


class _Logs:
    """Chosen once, at start."""

    def __init__(self) -> None:
        self.level_min = logging.INFO
        self.write: Callable[[LogLine], None] = _to_python


_logs: Final = _Logs()


def configure_logs(stream: TextIO, *, as_json: bool, level: int = logging.INFO) -> None:
    """For a program of our own; `stream` is standard error for a command."""
    _logs.level_min = level
    _logs.write = LineWriter(stream, as_json=as_json)


def send_logs(write: Callable[[LogLine], None]) -> Callable[[LogLine], None]:
    """Give lines to someone else, and get who had them before."""
    before, _logs.write = _logs.write, write
    return before


class Logger:
    """Each call is an event, in words that stay the same, and the facts of this time."""

    def __init__(self, name: str) -> None:
        self._name = name

    def info(self, event: str, /, **facts: Any) -> None:
        self.log(logging.INFO, event, **facts)

    def warning(self, event: str, /, **facts: Any) -> None:
        self.log(logging.WARNING, event, **facts)

    def error(self, event: str, /, **facts: Any) -> None:
        self.log(logging.ERROR, event, **facts)

    def exception(self, event: str, /, **facts: Any) -> None:
        """With the traceback of the error that is being handled."""
        self.log(logging.ERROR, event, exc_info=sys.exception(), **facts)

    def log(
        self, level: int, event: str, /, *, exc_info: BaseException | None = None, **facts: Any
    ) -> None:
        if level >= _logs.level_min:
            name = logging.getLevelName(level).lower()
            _logs.write(LogLine(self._name, name, event, facts, exc_info))
