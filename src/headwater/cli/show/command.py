"""`headwater show`: the structure of any one file of ours, field by field."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Annotated, Final

import typer

from headwater.cli.option_groups import JsonOption
from headwater.cli.output import complain
from headwater.cli.show.file_kinds import FileKind, kind_of
from headwater.cli.show.metadata import show_current, show_repairs, show_snapshot
from headwater.cli.show.parts import PARTS_OF, show_parts
from headwater.cli.show.segments import show_data, show_index
from headwater.cli.show.shown_file import Problem, ShownFile
from headwater.cli.show.wal_file import show_wal
from headwater.core.errors import RequestError, StorageError
from headwater.disk import Disk, PosixDisk
from headwater.recovery.directory import accessing
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
    buffer = _read(PosixDisk(), file)
    kind = kind_of(file, buffer)
    problem = SHOWN_BY[kind](ShownFile(file, kind, buffer, as_json, at, limit))
    if problem is not None:
        complain(str(StorageError(problem[0], path=file, offset=problem[1])))
        raise typer.Exit(StorageError.exit_code)


def _read(disk: Disk, file: PurePath) -> memoryview:
    with accessing(file):
        if not disk.exists(file):
            raise RequestError(f"there is no file {file}; check the path")
        if disk.is_directory(file):
            raise RequestError(f"{file} is a directory; check it with `headwater verify`")
    return read_log_file(disk, file)


SHOWN_BY: Final[dict[FileKind, Callable[[ShownFile], Problem | None]]] = {
    **dict.fromkeys(FileKind, ShownFile.say_head),
    FileKind.WAL: show_wal,
    FileKind.DATA: show_data,
    FileKind.INDEX: show_index,
    FileKind.SNAPSHOT: show_snapshot,
    FileKind.CURRENT: show_current,
    FileKind.REPAIRS: show_repairs,
    **dict.fromkeys(PARTS_OF, show_parts),
}
"""Of the others there is nothing to show but what they are."""
