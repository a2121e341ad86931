"""Structured logs, one JSON object a line, or coloured text on a terminal.

Lines are about trouble, so most servers write none. structlog, which brings rich and attrs, is
loaded when there is something to log, or when a server that is ready has time: no start waits
for it.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import Any, TextIO


@dataclass(frozen=True, slots=True)
class LogChoice:
    """Where lines go, how they look, and which of them are wanted."""

    stream: TextIO
    as_json: bool
    level: int


class Logs:
    """structlog, once it is there."""

    def __init__(self) -> None:
        self._loading = threading.Lock()
        self._choice: LogChoice | None = None

    def choose(self, choice: LogChoice) -> None:
        self._choice = choice

    def load(self) -> None:
        """Have everything there that the first line needs. From any thread."""
        with self._loading:
            choice, self._choice = self._choice, None
            if choice is not None:
                _configure(choice)

    def get(self, name: str) -> Any:
        self.load()
        import structlog

        return structlog.get_logger(name)


_logs = Logs()
load_logs = _logs.load


class Logger:
    """`warning(event, **facts)` and the other levels of structlog."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, level: str) -> Any:
        return getattr(_logs.get(self._name), level)


def configure_logs(stream: TextIO, *, as_json: bool, level: int = logging.INFO) -> None:
    """Choose once, at start. `stream` is standard error for a command."""
    _logs.choose(LogChoice(stream, as_json, level))


def _configure(choice: LogChoice) -> None:
    import structlog

    renderer: structlog.typing.Processor = structlog.processors.JSONRenderer()
    if not choice.as_json:
        renderer = structlog.dev.ConsoleRenderer(colors=choice.stream.isatty())
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(choice.level),
        logger_factory=structlog.WriteLoggerFactory(file=choice.stream),
        cache_logger_on_first_use=True,
    )
