"""Structured logs, one JSON object a line, or coloured text on a terminal."""

from __future__ import annotations

import logging
from typing import TextIO

import structlog


def configure_logs(stream: TextIO, *, as_json: bool, level: int = logging.INFO) -> None:
    """Set up logging once, at start. `stream` is standard error for a command."""
    renderer: structlog.typing.Processor = structlog.processors.JSONRenderer()
    if not as_json:
        renderer = structlog.dev.ConsoleRenderer()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=stream),
        cache_logger_on_first_use=True,
    )
