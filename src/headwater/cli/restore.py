"""`headwater restore`: a data directory out of a backup."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.log_directory import JsonOption
from headwater.cli.output import say, say_json, shown_path, when
from headwater.cli.transfer import parse_seqs, parse_time, speed, transferring
from headwater.core.clock import SystemClock
from headwater.disk import PosixDisk
from headwater.engine.backup import RestorePoint, restore_backup


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of `headwater backup`.")],
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="The data directory to make: new, or empty.")
    ],
    to_seq: Annotated[
        list[str] | None,
        typer.Option(
            "--to-seq",
            metavar="TOPIC=SEQ",
            help="Delete what this topic got after SEQ. May be given for several topics.",
        ),
    ] = None,
    to_time: Annotated[
        str | None,
        typer.Option(
            "--to-time",
            metavar="TIME",
            help="Delete what any topic got after this time: ISO, UTC unless it says otherwise, "
            "or milliseconds since 1970.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make a data directory from a backup.

    Every checksum is checked and the result is read as a start would read it before DIR gets its
    name; on any error there is no DIR. With --to-seq and --to-time later records are deleted for
    good, but their seqs are not given again: the next record goes on behind the old head.
    """
    seqs = parse_seqs(to_seq or [])
    time_ms = None if to_time is None else parse_time(to_time)
    clock = SystemClock()
    started_us = clock.monotonic_us()
    with transferring("Restoring") as begin:
        report = restore_backup(
            PosixDisk(),
            file.absolute(),
            directory.absolute(),
            RestorePoint(seqs, time_ms),
            clock,
            begin,
        )
    elapsed_us = clock.monotonic_us() - started_us
    topics = report.manifest.topics
    records = sum(topic.count for topic in topics) - report.records_deleted
    if as_json:
        say_json(
            {
                "directory": str(directory),
                "backup_created_ms": report.manifest.created_ms,
                "bytes": report.manifest.file_bytes,
                "topics": len(topics),
                "records": records,
                "records_deleted": report.records_deleted,
                "elapsed_ms": elapsed_us // 1_000,
            }
        )
        return
    say(
        f"{shown_path(directory)}: {len(topics):,} topics, {records:,} records as of "
        f"{when(report.manifest.created_ms)}, {speed(report.manifest.file_bytes, elapsed_us)}"
    )
    if report.records_deleted:
        say(f"{report.records_deleted:,} later records were deleted")
