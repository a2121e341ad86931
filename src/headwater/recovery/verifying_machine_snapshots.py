"""Snapshots of machines: each block, what is in it, and whether index.json says the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import msgspec

from headwater.core.errors import FormatError
from headwater.disk import Disk
from headwater.disk.whole import TEMPORARY_SUFFIX
from headwater.format.machines.names import (
    INDEX_NAME,
    INSTANCE_SUFFIX,
    parse_snapshot_file_name,
)
from headwater.format.machines.snapshot import (
    BlockKind,
    SnapshotHeading,
    SnapshotIndex,
    decode_blocks,
    decode_index,
    encode_index,
)
from headwater.model.machines.instance import Instance
from headwater.store.pair import read_all
from headwater.store.verifying import Fault, FaultKind


@dataclass(slots=True)
class SnapshotsLook:
    faults: list[Fault] = field(default_factory=list)
    heading: SnapshotHeading | None = None
    """Of the snapshot that a start begins with."""


@dataclass(slots=True)
class LoadedSnapshot:
    heading: SnapshotHeading
    instances: list[Instance]


def load_machine_snapshot(contents: bytes) -> LoadedSnapshot:
    """Heading and instances of a whole snapshot; FormatError with the reason otherwise."""
    heading: SnapshotHeading | None = None
    instances: list[Instance] = []
    for kind, plain in decode_blocks(contents):
        if kind is BlockKind.HEADING:
            heading = _rows(SnapshotHeading, plain)
        elif kind is BlockKind.INSTANCES:
            instances += _rows(list[Instance], plain)
    if heading is None:
        raise FormatError("a snapshot without a heading")
    if heading.instance_count != len(instances):
        raise FormatError(f"{len(instances)} instances where {heading.instance_count} are told")
    return LoadedSnapshot(heading, instances)


def _rows(kind: Any, plain: bytes) -> Any:
    try:
        return msgspec.msgpack.decode(plain, type=kind)
    except msgspec.MsgspecError as error:
        raise FormatError(f"a block cannot be read: {error}") from error


def look_at_machine_snapshots(disk: Disk, directory: PurePath, complete: bool) -> SnapshotsLook:
    """All of them. While the log is complete, a start can do without."""
    look = SnapshotsLook()
    if not disk.is_directory(directory):
        return look
    names = disk.list_directory(directory)
    index = _index(disk, directory, look) if INDEX_NAME in names else None
    named = {heading.file: heading for heading in index.snapshots} if index is not None else {}
    whole: list[SnapshotHeading] = []
    for name in sorted({*names, *named} - {INDEX_NAME}):
        heading = named.get(name)
        if heading is None and (index is not None or parse_snapshot_file_name(name) is None):
            look.faults += _not_named(directory / name)
            continue
        if name not in names:
            what = "missing: the snapshot that index.json names"
            look.faults.append(Fault(directory / name, None, what, not complete, FaultKind.MISSING))
            continue
        try:
            found = load_machine_snapshot(read_all(disk, directory / name)).heading
        except FormatError as error:
            bad = not complete
            fault = Fault(directory / name, error.offset, error.reason, bad, FaultKind.SNAPSHOT)
            look.faults.append(fault)
            continue
        if heading is not None and heading != found:
            what = f"index.json tells something else of {name} than the snapshot itself"
            look.faults.append(Fault(directory / INDEX_NAME, None, what, True, FaultKind.SNAPSHOT))
        whole.append(found)
    if INDEX_NAME in names:  # without one, a start takes no snapshot
        look.heading = max(whole, key=lambda each: each.wal_offset, default=None)
    return look


def _index(disk: Disk, directory: PurePath, look: SnapshotsLook) -> SnapshotIndex | None:
    path = directory / INDEX_NAME
    contents = read_all(disk, path)
    try:
        index = decode_index(contents)
    except FormatError as error:
        what = f"{error.reason}; a start looks for the newest whole snapshot"
        look.faults.append(Fault(path, None, what, False, FaultKind.SNAPSHOT))
        return None
    if encode_index(index) != contents:
        what = "not as it was written"
        look.faults.append(Fault(path, None, what, False, FaultKind.SNAPSHOT))
    return index


def _not_named(path: PurePath) -> list[Fault]:
    if path.name.endswith(INSTANCE_SUFFIX):
        return []  # one instance, for people; nobody loads it
    if path.name.endswith(TEMPORARY_SUFFIX) or parse_snapshot_file_name(path.name) is not None:
        what = "left by work that was interrupted or goes on"
        return [Fault(path, None, what, False, FaultKind.UNFINISHED)]
    return [Fault(path, None, "not a name this software gives", False, FaultKind.NAME)]
