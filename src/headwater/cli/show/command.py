"""`headwater show`: the structure of any one file of ours, field by field."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import Annotated, Any

import typer

from headwater.cli.option_groups import JsonOption
from headwater.cli.output import complain, say, say_json, shown_path
from headwater.cli.show.file_kinds import FileKind, kind_of
from headwater.cli.show.metadata import show_current, show_repairs, show_snapshot
from headwater.cli.show.parts import SHOWN, show_parts
from headwater.cli.show.segments import show_data, show_index
from headwater.cli.show.wal_file import show_wal
from headwater.core.errors import RequestError, StorageError
from headwater.disk import Disk, PosixDisk
from headwater.recovery.access import access_error
from headwater.recovery.topics.survey import read_log_file


def show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of a data directory.")],
    as_json: JsonOption = False,
    at: Annotated[
        int, typer.Option(min=0, metavar="BYTE", help="Begin with the frame at this offset.")
    ] = 0,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Stop after this many frames.")
    ] = None,
) -> None:
    """Show what a file holds: every field with its offset and value.

    Knows WAL files (also the copies in quarantine), CURRENT and REPAIRS, both files of a segment,
    snapshots, and the files of Kafka's log and of state machines, by name and by content. Damaged
    stretches are shown in their place, with the reason, and make the exit code 5. With --json there
    is one object per line: first the file, then each frame or entry. Changes nothing.
    """
    disk = PosixDisk()
    buffer = _read(disk, file)
    kind = kind_of(file, buffer)
    summary: dict[str, Any] = {"file": str(file), "kind": kind.value, "bytes": len(buffer)}
    if kind is FileKind.WAL:
        problem = show_wal(file, buffer, summary, as_json=as_json, at=at, limit=limit)
    elif kind is FileKind.DATA:
        problem = show_data(buffer, summary, as_json=as_json, at=at, limit=limit)
    elif kind is FileKind.INDEX:
        problem = show_index(file, buffer, summary, as_json=as_json, at=at, limit=limit)
    elif kind is FileKind.SNAPSHOT:
        problem = show_snapshot(bytes(buffer), summary, as_json=as_json)
    elif kind is FileKind.CURRENT:
        problem = show_current(bytes(buffer), summary, as_json=as_json)
    elif kind in SHOWN:
        problem = show_parts(kind, buffer, summary, as_json=as_json, at=at, limit=limit)
    elif kind is FileKind.REPAIRS:
        problem = show_repairs(bytes(buffer), summary, as_json=as_json)
    else:
        problem = None
        _show_plain(file, kind, len(buffer), as_json)
    if problem is not None:
        complain(str(StorageError(problem[0], path=file, offset=problem[1])))
        raise typer.Exit(StorageError.exit_code)


def _read(disk: Disk, file: PurePath) -> memoryview:
    try:
        if not disk.exists(file):
            raise RequestError(f"there is no file {file}; check the path")
        if disk.is_directory(file):
            raise RequestError(f"{file} is a directory; check it with `headwater verify`")
    except OSError as error:
        raise access_error(file, error) from error
    return read_log_file(disk, file)


def _show_plain(file: PurePath, kind: FileKind, size: int, as_json: bool) -> None:
    if as_json:
        say_json({"file": str(file), "kind": kind.value, "bytes": size})
    else:
        say(f"{shown_path(file)}: {kind.value}, {size:,} bytes")
