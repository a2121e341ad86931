"""Snapshots of machines: each block against its checksum, and what index.json says of them.

The only reader of snapshots. A snapshot says itself what it is of; index.json only names which
of the files count, so it is believed as far as the files say the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any, Final

import msgspec

from headwater.core.errors import FormatError
from headwater.disk import Disk, read_all
from headwater.format.frame import UnknownFrameError
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
    packed_blocks,
    unpack_block,
)
from headwater.format.names import QUARANTINE_DIRECTORY
from headwater.model.machines.instance import Instance
from headwater.recovery.directory import sort_names
from headwater.recovery.machines.table import IndexState, SnapshotVerdict


@dataclass(frozen=True, slots=True)
class SnapshotScan:
    path: PurePath
    verdict: SnapshotVerdict
    heading: SnapshotHeading | None = None
    """Its own; where it is damaged or missing, what index.json says of it, if that is sound."""
    offset: int | None = None
    reason: str = ""

    @property
    def wal_offset(self) -> int:
        return 0 if self.heading is None else self.heading.wal_offset


@dataclass(slots=True)
class SnapshotsScan:
    directory: PurePath
    index: IndexState = IndexState.ABSENT
    index_reason: str = ""
    snapshots: list[SnapshotScan] = field(default_factory=list)
    leftovers: list[PurePath] = field(default_factory=list)
    foreign: list[PurePath] = field(default_factory=list)

    def whole(self) -> list[SnapshotScan]:
        """Those a start may begin with, the newest first."""
        whole = [each for each in self.snapshots if each.verdict is SnapshotVerdict.WHOLE]
        return sorted(whole, key=lambda each: each.wal_offset, reverse=True)


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
            heading = block_rows(SnapshotHeading, plain)
        elif kind is BlockKind.INSTANCES:
            instances += block_rows(list[Instance], plain)
    if heading is None:
        raise FormatError(_NO_HEADING)
    if heading.instance_count != len(instances):
        raise FormatError(
            f"{len(instances)} instances where the heading says {heading.instance_count}"
        )
    return LoadedSnapshot(heading, instances)


def heading_of(contents: bytes) -> SnapshotHeading:
    """Of a whole snapshot. Every block's checksum is checked, and only one block is unpacked."""
    heading: SnapshotHeading | None = None
    for block in packed_blocks(contents):
        if block.kind is BlockKind.HEADING:
            heading = block_rows(SnapshotHeading, unpack_block(block))
    if heading is None:
        raise FormatError(_NO_HEADING)
    return heading


_NO_HEADING: Final = "a snapshot without a heading"


def block_rows(kind: Any, plain: bytes) -> Any:
    try:
        return msgspec.msgpack.decode(plain, type=kind)
    except msgspec.MsgspecError as error:
        raise FormatError(f"a block cannot be read: {error}") from error


def scan_machine_snapshots(disk: Disk, directory: PurePath) -> SnapshotsScan:
    """All of them. FileNotFoundError when one goes away meanwhile: scan again."""
    scan = SnapshotsScan(directory)
    names = disk.list_directory(directory) if disk.is_directory(directory) else []
    named = _named(disk, scan) if INDEX_NAME in names else {}
    scans: dict[str, SnapshotScan] = {}
    there = sort_names(directory, names, parse_snapshot_file_name, _is_own)
    scan.leftovers, scan.foreign = there.leftovers, there.foreign
    for name in sorted({*there.known, *named}):
        path = directory / name
        if name in there.known:
            scans[name] = _scan_one(disk, path, named.get(name))
        else:
            reason = "missing: the snapshot that index.json names"
            scans[name] = SnapshotScan(path, SnapshotVerdict.MISSING, named[name], None, reason)
    _compare_with_files(scan, named, scans)
    if scan.index is IndexState.SOUND:
        for name in scans.keys() - named.keys():
            scans[name] = replace(scans[name], verdict=SnapshotVerdict.UNNAMED)
    scan.snapshots = [scans[name] for name in sorted(scans)]
    return scan


def _is_own(name: str) -> bool:
    return name in (INDEX_NAME, QUARANTINE_DIRECTORY) or name.endswith(INSTANCE_SUFFIX)


def _named(disk: Disk, scan: SnapshotsScan) -> dict[str, SnapshotHeading]:
    """What the index names. It is sound when it is, byte by byte, what this software writes."""
    contents = read_all(disk, scan.directory / INDEX_NAME)
    scan.index = IndexState.SOUND
    try:
        index = decode_index(contents)
    except FormatError as error:
        scan.index, scan.index_reason = IndexState.DAMAGED, error.reason
        return {}
    if encode_index(SnapshotIndex(index.snapshots)) != contents:
        scan.index, scan.index_reason = IndexState.DAMAGED, "not as it was written"
    named = {heading.file: heading for heading in index.snapshots}
    strange = [name for name in named if parse_snapshot_file_name(name) is None]
    if strange:
        scan.index, scan.index_reason = IndexState.DAMAGED, f"names {strange[0]!r}"
    return {name: heading for name, heading in named.items() if name not in strange}


def _scan_one(disk: Disk, path: PurePath, named: SnapshotHeading | None) -> SnapshotScan:
    try:
        heading = heading_of(read_all(disk, path))
    except UnknownFrameError as error:
        return SnapshotScan(path, SnapshotVerdict.NEWER, named, error.offset, error.reason)
    except FormatError as error:
        return SnapshotScan(path, SnapshotVerdict.DAMAGED, named, error.offset, error.reason)
    if heading.file != path.name:
        reason = f"it is the snapshot {heading.file}, under another name"
        return SnapshotScan(path, SnapshotVerdict.DAMAGED, named, 0, reason)
    return SnapshotScan(path, SnapshotVerdict.WHOLE, heading)


def _compare_with_files(
    scan: SnapshotsScan, named: dict[str, SnapshotHeading], scans: dict[str, SnapshotScan]
) -> None:
    """An index that says something else than a whole snapshot itself is not what was written."""
    whole = {name for name, each in scans.items() if each.verdict is SnapshotVerdict.WHOLE}
    wrong = [name for name in whole & named.keys() if scans[name].heading != named[name]]
    missing = any(each.verdict is SnapshotVerdict.MISSING for each in scans.values())
    reason = ""
    if wrong:
        reason = f"says something else of {wrong[0]} than the snapshot itself"
    elif missing and whole - named.keys():
        reason = "names a snapshot that is not there, and not one that is"
    if scan.index is IndexState.ABSENT and whole:
        scan.index = IndexState.LOST
    elif scan.index is IndexState.SOUND and reason:
        scan.index, scan.index_reason = IndexState.DAMAGED, reason
