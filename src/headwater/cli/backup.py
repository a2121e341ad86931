"""`headwater backup` and `headwater restore`: a data directory in one file, and out of it again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.option_groups import JsonOption
from headwater.cli.output import say, say_json, shown_path, when
from headwater.cli.progress import parse_seqs, parse_time, speed, transferring
from headwater.config.engine import EngineSettings
from headwater.core.clock import SystemClock
from headwater.core.errors import RequestError
from headwater.disk import PosixDisk
from headwater.engine.backup import RestorePoint, make_backup, restore_backup, verify_backup


def backup(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="DIR FILE", help="The data directory and the file to write."),
    ],
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Restore the backup beside itself and read it. With FILE alone, do only that.",
        ),
    ] = False,
    cold: Annotated[
        str | None,
        typer.Option("--cold", metavar="PLACE", help="Where segments were moved to, if they were."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a backup of a data directory into one file, while it is in use or not.

    Everything acknowledged before the start is in it. No lock is taken, nothing in DIR is changed,
    and nothing has to be stopped. FILE is a plain tar with a checksum for every file in it; it gets
    its name when it is complete and on the disk. `headwater backup --verify FILE` restores it into
    a temporary directory beside it, compares heads, counts and indexes, and reads every record.
    """
    if len(paths) == 1 and verify:
        _verify(paths[0].absolute(), as_json=as_json)
        return
    if len(paths) != 2:
        raise RequestError("name a data directory and a file: headwater backup DIR FILE")
    directory, path = (each.absolute() for each in paths)
    clock = SystemClock()
    settings = EngineSettings() if cold is None else replace(EngineSettings(), cold_url=cold)
    started_us = clock.monotonic_us()
    with transferring("Backing up") as begin:
        report = make_backup(PosixDisk(), directory, path, settings, clock, begin)
    elapsed_us = clock.monotonic_us() - started_us
    if as_json:
        say_json(
            {
                "file": str(path),
                "bytes": report.bytes,
                "created_ms": report.manifest.created_ms,
                "files": len(report.manifest.members),
                "topics": len(report.manifest.topics),
                "records": report.records,
                "passes": report.passes,
                "elapsed_ms": elapsed_us // 1_000,
            }
        )
    else:
        say(
            f"{shown_path(path)}: {len(report.manifest.topics):,} topics, "
            f"{report.records:,} records, {speed(report.bytes, elapsed_us)}"
        )
    if verify:
        _verify(path, as_json=as_json)


def _verify(path: Path, *, as_json: bool) -> None:
    clock = SystemClock()
    started_us = clock.monotonic_us()
    with transferring("Verifying") as begin:
        report = verify_backup(PosixDisk(), path, clock, begin)
    elapsed_us = clock.monotonic_us() - started_us
    if as_json:
        say_json(
            {
                "ok": True,
                "file": str(path),
                "bytes": report.bytes,
                "created_ms": report.manifest.created_ms,
                "topics": len(report.manifest.topics),
                "records": report.records,
                "records_xxh3": report.records_xxh3,
                "elapsed_ms": elapsed_us // 1_000,
            }
        )
    else:
        say(
            f"ok: {shown_path(path)}: restored and read: {len(report.manifest.topics):,} topics, "
            f"{report.records:,} records, {speed(report.bytes, elapsed_us)}"
        )


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
