"""Verify's check of what compaction kept for the histories of instances. Nothing is changed.

A start does without these files, so no damage of theirs stops anything; what it costs is reported.
"""

from __future__ import annotations

from pathlib import PurePath

from headwater.core.errors import FormatError
from headwater.disk import Disk
from headwater.format.machines.history_file import HistoryFile
from headwater.format.machines.names import parse_history_name
from headwater.recovery.machines.verdict import MachineOddity
from headwater.recovery.names import sort_names
from headwater.store.pair import read_all
from headwater.store.verify import FaultKind, VerifyFault


def history_faults(disk: Disk, directory: PurePath) -> list[VerifyFault]:
    """Every file of the directory, entry by entry."""
    faults: list[VerifyFault] = []
    names = disk.list_directory(directory) if disk.is_directory(directory) else []
    there = sort_names(directory, names, parse_history_name, lambda _: False)
    for name, segment in there.known.items():
        faults += _faults_of(disk, directory / name, segment)
    for oddity, paths, kind in (
        (MachineOddity.LEFTOVER, there.leftovers, FaultKind.UNFINISHED),
        (MachineOddity.FOREIGN_NAME, there.foreign, FaultKind.NAME),
    ):
        faults += [VerifyFault(path, None, oddity.value, False, kind) for path in paths]
    return faults


def _faults_of(disk: Disk, path: PurePath, segment: int) -> list[VerifyFault]:
    try:
        contents = read_all(disk, path)
    except FileNotFoundError:
        return []  # compaction removed it meanwhile
    try:
        kept = HistoryFile(lambda at, length: contents[at : at + length], len(contents), segment)
        for _ in kept.entries():
            continue
    except FormatError as error:
        what = f"{error.reason}; histories that reach back to here end here"
        return [VerifyFault(path, error.offset, what, True, FaultKind.ENTRY)]
    return []
