"""The server's process: `headwater serve`, with a clock that can be moved from outside.

Only the wall side moves, as with NTP or an operator; the shift is eight bytes of a mapped file that
the parent process writes. Thresholds that `serve` has no setting for are taken from the environment
here, so that small data goes through checkpoints, rotations and rewrites all the time.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

SHIFT_FILE: Final = "TORTURE_CLOCK_SHIFT_FILE"
ENGINE: Final = "TORTURE_ENGINE"
KAFKA: Final = "TORTURE_KAFKA"
"""JSON objects of fields of `EngineSettings` and `KafkaSettings`."""
_SHIFT: Final = struct.Struct("<q")
SHIFT_BYTES: Final = _SHIFT.size


def packed_shift(shift_ms: int) -> bytes:
    return _SHIFT.pack(shift_ms)


def shift_the_wall_clock(path: str) -> None:
    from headwater.core import clock

    with open(path, "rb") as file:
        view = mmap.mmap(file.fileno(), SHIFT_BYTES, prot=mmap.PROT_READ)
    true_wall_ms = clock.SystemClock.wall_ms

    def wall_ms(self: clock.SystemClock) -> int:
        shift_ms: int = _SHIFT.unpack_from(view)[0]
        return true_wall_ms(self) + shift_ms

    clock.SystemClock.wall_ms = wall_ms  # type: ignore[method-assign]


def take_thresholds(engine: Mapping[str, Any], kafka: Mapping[str, Any]) -> None:
    from headwater.cli import server_run
    from headwater.config.kafka import KafkaSettings
    from headwater.server.server import Server

    def begin_server(directory: str, settings: Any, engine_settings: Any, **others: Any) -> Server:
        return Server(
            directory,
            settings,
            replace(engine_settings, **engine),
            kafka_settings=partial(KafkaSettings, **kafka)(),
            **others,
        )

    vars(server_run)["Server"] = begin_server


def main() -> None:
    sys.argv[0] = "headwater"
    path = os.environ.get(SHIFT_FILE)
    if path:
        shift_the_wall_clock(path)
    engine = json.loads(os.environ.get(ENGINE, "{}"))
    kafka = json.loads(os.environ.get(KAFKA, "{}"))
    if engine or kafka:
        take_thresholds(engine, kafka)
    from headwater.cli.entry import main as headwater

    headwater()


if __name__ == "__main__":
    main()
