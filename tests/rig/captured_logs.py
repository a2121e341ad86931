"""What a program logs meanwhile, as a list."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headwater.observe.logs import LogLine, send_logs


@contextmanager
def captured_logs() -> Iterator[list[dict[str, Any]]]:
    """Facts by name, with `event` and `level`, and `exc_info` where a traceback belongs to it."""
    lines: list[dict[str, Any]] = []

    def take(line: LogLine) -> None:
        told = {**line.facts, "event": line.event, "level": line.level}
        lines.append(told if line.error is None else {**told, "exc_info": line.error})

    before = send_logs(take)
    try:
        yield lines
    finally:
        send_logs(before)
