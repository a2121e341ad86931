"""`headwater backup --verify`: a backup is good when it has been restored and read.

Restored beside the file into a directory that is removed again, compared with the manifest, and
then every record is read with its checksum.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from headwater.config.engine import EngineSettings
from headwater.core.clock import Clock
from headwater.core.errors import DamageError
from headwater.core.records import Record
from headwater.core.units import MIB
from headwater.disk import Disk
from headwater.engine.backup.archive import ArchiveReader
from headwater.engine.backup.backup import Begin
from headwater.engine.backup.kafka_files import read_every_batch
from headwater.engine.backup.machine_files import check_machines, read_every_entry
from headwater.engine.backup.restore import check_facts, unpacked
from headwater.engine.backup.still_clock import StillClock
from headwater.engine.read_only import DirectoryView
from headwater.engine.state.topic import Topic
from headwater.engine.topics.reader import ReadFilter, read_records
from headwater.format.backup import Manifest
from headwater.format.checksum import RunningChecksum
from headwater.model.loss import DAMAGED

VERIFYING_SUFFIX: Final = ".verify"
RECORDS_AT_ONCE: Final = 1_000
BYTES_AT_ONCE: Final = 16 * MIB


@dataclass(frozen=True, slots=True)
class VerifyReport:
    path: PurePath
    bytes: int
    manifest: Manifest
    records: int
    records_xxh3: str
    """Over seq, time, node, tag, data and meta of every record, topic by topic."""


def verify_backup(disk: Disk, path: PurePath, clock: Clock, begin: Begin) -> VerifyReport:
    archive = ArchiveReader(disk, path)
    try:
        manifest = archive.manifest
        beside = path.with_name(path.name + VERIFYING_SUFFIX)
        still = StillClock(clock, manifest.created_ms)
        with unpacked(disk, archive, beside, begin(manifest.file_bytes)) as staging:
            view = DirectoryView(disk, staging, EngineSettings(), still)
            check_facts(view, manifest, path)
            read_every_batch(disk, staging)
            check_machines(disk, staging)
            read_every_entry(disk, staging)
            checksum = RunningChecksum()
            records = sum(
                _read_all(view.topic(topic.name), checksum, path) for topic in manifest.topics
            )
        return VerifyReport(path, archive.bytes, manifest, records, f"{checksum.value():016x}")
    finally:
        archive.close()


def _read_all(topic: Topic, checksum: RunningChecksum, path: PurePath) -> int:
    """Read every live record of a topic and check its checksum."""
    if not topic.loaded:
        installed = topic.read_index()
        installed()
    cursor, records = topic.log.earliest_seq - 1, 0
    while True:
        plan = topic.plan(cursor, RECORDS_AT_ONCE, BYTES_AT_ONCE)
        fetched, findings = read_records(plan, ReadFilter())
        gap = plan.selection.tombstone
        if gap is not None and gap.reason == DAMAGED:
            what = f"the records at seqs {gap.gap_from} to {gap.gap_to} cannot be read"
            raise DamageError(f"topic {topic.name!r}: {what}", path=path)
        if findings or len(fetched) != len(plan.selection.seqs):
            what = str(findings[0]) if findings else f"records behind seq {cursor} are missing"
            raise DamageError(f"topic {topic.name!r}: {what}", path=path)
        for record in fetched:
            _take_in(checksum, record)
        records += len(fetched)
        cursor = plan.selection.next_from_seq
        if plan.selection.caught_up:
            return records


def _take_in(checksum: RunningChecksum, record: Record) -> None:
    heading = f"{record.seq} {record.ts} {record.node!r} {record.tag!r} {len(record.data_json)} "
    checksum.update(heading.encode("utf-8", "backslashreplace"))
    checksum.update(record.data_json)
    checksum.update(record.meta_json or b"")
