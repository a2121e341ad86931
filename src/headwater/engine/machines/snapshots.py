"""Snapshots of machines: maintenance writes them and reads them back, a start loads them.

A snapshot has its name and is synced before the index names it, and the index is replaced as a
whole; segments of the log go after that. So at every moment either the old snapshot and its log,
or the new one and its log, are there (I7).
"""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final, NamedTuple

import msgspec

from headwater.core.errors import DamageError, FormatError
from headwater.core.units import MS_PER_S
from headwater.disk import (
    Disk,
    have_directory,
    new_file,
    read_all,
    replace_file,
    write_all,
)
from headwater.disk.whole_files import TEMPORARY_SUFFIX, sync_names
from headwater.engine.machines.answers import InstanceSnapshot
from headwater.engine.machines.tables import Tables
from headwater.format.crc32c import crc32c
from headwater.format.machines.names import (
    INSTANCE_SUFFIX,
    parse_instance_file_name,
    parse_snapshot_file_name,
    snapshot_file_name,
)
from headwater.format.machines.snapshot import (
    ROWS_PER_BLOCK,
    BlockEncoder,
    BlockKind,
    SnapshotHeading,
    decode_blocks,
    encode_start,
)
from headwater.model.machines.definition import Definition, parse_definition
from headwater.model.machines.instance import Instance, RememberedAnswer
from headwater.model.machines.values import object_of
from headwater.recovery.machines.repair import write_index
from headwater.recovery.machines.snapshot import block_rows

_MachineRow = tuple[str, int, bytes]


@dataclass(frozen=True, slots=True)
class Captured:
    """Everything at one moment. Instances never change, so lists of them are enough."""

    definitions: list[Definition]
    instances: list[Instance]
    keys: list[RememberedAnswer]
    retired_ids: list[str]
    wal_offset: int
    sequence: int
    wall_ms: int
    doubt_before: int
    damaged_entries: int


class WrittenSnapshot(NamedTuple):
    heading: SnapshotHeading
    bytes: int


class SnapshotFiles:
    """The directory of snapshots. For the maintenance thread and for the start; any thread may
    write snapshots of one instance, several at once."""

    def __init__(self, disk: Disk, directory: PurePath) -> None:
        self._disk = disk
        self._directory = directory
        self._naming = threading.Lock()
        self._being_written: set[str] = set()
        """Names of snapshots of one instance that are being written."""

    def write(self, captured: Captured, before: SnapshotHeading | None) -> WrittenSnapshot:
        """A new snapshot, read back and named in the index beside the one before, which is known to
        be whole: should either go bad, the other and the log hold the same. Older ones go."""
        have_directory(self._disk, self._directory)
        self._remove_leftovers()
        name = self._free_name(captured.wall_ms // 1_000)
        heading = SnapshotHeading(
            _iso(captured.wall_ms),
            captured.wal_offset,
            len(captured.instances),
            tuple(sorted({each.machine for each in captured.definitions})),
            captured.sequence,
            name,
            captured.doubt_before,
            captured.damaged_entries,
        )
        size = 0
        with new_file(self._disk, self._directory / name) as file:
            for block in _blocks(heading, captured):
                size += write_all(file, size, [block])
        contents = read_all(self._disk, self._directory / name)
        for _ in decode_blocks(contents):
            continue  # what cannot be read back must not replace what can
        kept = [heading] if before is None else [before, heading]
        write_index(self._disk, self._directory, kept)
        for other in self._names():
            if all(other != each.file for each in kept):
                self._disk.unlink(self._directory / other)
        sync_names(self._disk, self._directory)
        return WrittenSnapshot(heading, size)

    def write_instance(
        self, instance: Instance, definition: Definition, at_ms: int
    ) -> InstanceSnapshot:
        """One instance in a file of its own, beside the snapshots. Never loaded at start."""
        have_directory(self._disk, self._directory)
        body = {
            "timestamp": _iso(at_ms),
            "instance": {
                "instance_id": instance.id,
                "machine": instance.machine,
                "version": instance.version,
                "state": instance.state,
                "ctx": msgspec.Raw(instance.ctx),
                "created_at": instance.created_at,
                "updated_at": instance.updated_at,
                "last_wal_offset": instance.last_wal_offset,
                "last_event_id": instance.last_event_id,
            },
            "definition": msgspec.Raw(definition.canonical),
        }
        with self._naming:
            name = self._free_name(at_ms // 1_000, suffix=INSTANCE_SUFFIX)
            self._being_written.add(name)
        contents = msgspec.json.encode(body)
        try:
            replace_file(self._disk, self._directory / name, contents)
        finally:
            with self._naming:
                self._being_written.discard(name)
        return InstanceSnapshot(
            name, instance.id, instance.state, instance.last_wal_offset, len(contents),
            f"{crc32c(contents):08x}",
        )  # fmt: skip

    def count(self) -> int:
        """Of snapshots that are there, those of single instances among them."""
        if not self._disk.is_directory(self._directory):
            return 0
        return len(self._names()) + len(self._instance_names())

    def prune_instances(self, count_max: int, before_ms: int) -> int:
        """Remove snapshots of single instances: those made before a time, and the oldest beyond
        the count; 0 keeps any number. Nothing is started from them; whole snapshots, and files
        that are being written, are left alone."""
        if not self._disk.is_directory(self._directory):
            return 0
        names = self._instance_names()
        too_many = len(names) - count_max if count_max else 0
        removed = 0
        for number, (made, name) in enumerate(names):
            if number >= too_many and made[0] * MS_PER_S >= before_ms:
                break
            with self._naming:
                is_in_hand = name in self._being_written
            if not is_in_hand:
                self._disk.unlink(self._directory / name)
                removed += 1
        if removed:
            sync_names(self._disk, self._directory)
        return removed

    def _instance_names(self) -> list[tuple[tuple[int, int], str]]:
        """Of single instances, the oldest first."""
        names = self._disk.list_directory(self._directory)
        parsed = [(parse_instance_file_name(name), name) for name in names]
        return sorted((made, name) for made, name in parsed if made is not None)

    def _remove_leftovers(self) -> None:
        """Snapshots that a crash cut off."""
        with self._naming:
            in_hand = set(self._being_written)
        for name in self._disk.list_directory(self._directory):
            if name.endswith(TEMPORARY_SUFFIX) and name[: -len(TEMPORARY_SUFFIX)] not in in_hand:
                self._disk.unlink(self._directory / name)

    def _names(self) -> list[str]:
        names = self._disk.list_directory(self._directory)
        return [name for name in names if parse_snapshot_file_name(name) is not None]

    def _free_name(self, unix_seconds: int, suffix: str = "") -> str:
        taken = {*self._disk.list_directory(self._directory), *self._being_written}
        number = 0
        while (name := snapshot_file_name(unix_seconds, number) + suffix) in taken:
            number += 1
        return name


_ADVICE: Final = "restore a backup, or use the version of Headwater that wrote it"


def _iso(ms: int) -> str:
    moment = datetime.datetime.fromtimestamp(ms // 1_000, tz=datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _blocks(heading: SnapshotHeading, captured: Captured) -> Iterator[bytes]:
    encoder = BlockEncoder()
    yield encode_start()
    yield encoder.encode(BlockKind.HEADING, heading)
    machines = [
        (each.machine, each.version, each.canonical)
        for each in sorted(captured.definitions, key=lambda each: (each.machine, each.version))
    ]
    instances = sorted(captured.instances, key=lambda each: each.id)
    for kind, rows in (
        (BlockKind.MACHINES, machines),
        (BlockKind.INSTANCES, instances),
        (BlockKind.KEYS, captured.keys),
        (BlockKind.RETIRED_IDS, sorted(captured.retired_ids)),
    ):
        for at in range(0, len(rows), ROWS_PER_BLOCK):
            yield encoder.encode(kind, rows[at : at + ROWS_PER_BLOCK])
    yield encoder.encode(BlockKind.END, len(instances))


def fill_from_snapshot(disk: Disk, path: PurePath, tables: Tables) -> None:
    """Of a snapshot that recovery has checked. The log goes on from there, and then the tables are
    `complete`. DamageError names file and offset of damage."""
    try:
        _fill(tables, read_all(disk, path))
    except FormatError as error:
        raise DamageError(error.reason, path=path, offset=error.offset, advice=_ADVICE) from error


def _fill(tables: Tables, contents: bytes) -> None:
    for kind, plain in decode_blocks(contents):
        if kind is BlockKind.MACHINES:
            for name, version, canonical in block_rows(list[_MachineRow], plain):
                definition = parse_definition(name, version, object_of(canonical))
                tables.machines.setdefault(definition.machine, {})[version] = definition
        elif kind is BlockKind.INSTANCES:
            rows: list[Instance] = block_rows(list[Instance], plain)
            _share_texts(tables, rows)
            tables.instances.update({row.id: row for row in rows})
        elif kind is BlockKind.KEYS:
            for remembered in block_rows(list[RememberedAnswer], plain):
                tables.remember(remembered)
        elif kind is BlockKind.RETIRED_IDS:
            tables.retired_ids.update(block_rows(list[str], plain))
        elif kind is BlockKind.HEADING:
            tables.doubt_before = block_rows(SnapshotHeading, plain).doubt_before


def _share_texts(tables: Tables, rows: Sequence[Instance]) -> None:
    """A million instances of a machine share its few texts, as they did when they were made."""
    set_field: Callable[..., None] = msgspec.structs.force_setattr
    texts = {text: text for versions in tables.machines.values() for each in versions.values()
             for text in (each.machine, *each.states.values())}  # fmt: skip
    for row in rows:
        set_field(row, "machine", texts.get(row.machine, row.machine))
        set_field(row, "state", texts.get(row.state, row.state))
