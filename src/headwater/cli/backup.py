"""`headwater backup`: one file that holds a data directory, and the proof that it does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.log_directory import JsonOption
from headwater.cli.output import say, say_json, shown_path
from headwater.cli.transfer import speed, transferring
from headwater.config.engine import EngineSettings
from headwater.core.clock import SystemClock
from headwater.core.errors import RequestError
from headwater.disk import PosixDisk
from headwater.engine.backup import make_backup, verify_backup


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
