"""`verify`: is everything in a data directory what was written, and if not, where is it not?

Every checksum of the log and of segments in both tiers, every index entry against its frame, the
chain of the log's marks, each seq where it belongs, snapshots and what they count, CURRENT, names;
the same for Kafka's shared log and for the log of machines. It changes nothing, takes no lock, and
may run beside an owner: a finding counts when two scans agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

import msgspec

from headwater.core.clock import Clock, SystemClock
from headwater.core.errors import RequestError
from headwater.core.units import US_PER_S
from headwater.disk import Disk, PosixDisk
from headwater.format.names import PREPARED_NAME
from headwater.recovery.directory import accessing
from headwater.recovery.finding import Action
from headwater.spark.jobs.directory_scan import DirectoryScan, scan_directory
from headwater.spark.jobs.job import MapAll, NoProgress, Progress, Report, SparkMap, tasks_shown
from headwater.spark.jobs.log_directories import require_cold, require_data_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCANS_MAX: Final = 6
_LOG_KINDS: Final = {
    Action.CUT: "torn tail",
    Action.REWRITE: "CURRENT",
    Action.REMOVE: "unfinished work",
    Action.NOTE: "note",
    Action.REFUSE_DAMAGED: "damage to the log",
    Action.REFUSE_FOREIGN: "foreign file",
    Action.REFUSE_NEWER: "newer version",
}


class VerifyOptions(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    """A data directory, in use or not."""
    cold: str | None = None
    """Its cold tier, if it has one: a directory or the URL of an object store."""


class VerifyFinding(msgspec.Struct, frozen=True, kw_only=True):
    file: str
    offset: int | None
    kind: str
    meaning: str
    bad: bool
    """Something cannot be served, or a start would be refused. The rest Headwater repairs itself,
    or it does no harm."""


class VerifyJobReport(Report, frozen=True, kw_only=True):
    source: str
    log_files: int
    groups: int
    frames: int
    snapshots: int
    topics: int
    segments: int
    records: int
    """Seqs in segments."""
    data_bytes: int
    """Bytes of segments and of the other logs whose checksums were checked."""
    kafka_segments: int = 0
    kafka_batches: int = 0
    machine_segments: int = 0
    machine_entries: int = 0
    problems: int
    findings: tuple[VerifyFinding, ...]
    seconds: float


def run(
    spark: SparkSession, options: VerifyOptions, progress: Progress | None = None
) -> VerifyJobReport:
    """Verify with the tasks of a session."""
    with tasks_shown(spark, progress):
        return verify(PosixDisk(), SystemClock(), SparkMap(spark), options, progress)


def verify(
    disk: Disk,
    clock: Clock,
    map_all: MapAll,
    options: VerifyOptions,
    progress: Progress | None = None,
) -> VerifyJobReport:
    """The same with any way to map a function over items."""
    directory = PurePath(options.path)
    began_us = clock.monotonic_us()
    _refuse_other_directories(disk, directory, options.cold)
    say = (progress or NoProgress()).say
    say("checking everything")
    with accessing(directory):
        scan = scan_directory(disk, directory, options.cold, map_all)
        findings = list(_findings(scan))
        suspects = scan
        for _ in range(SCANS_MAX):
            if not findings:
                break
            say("checking again what was reported")
            earlier = set(findings)
            suspects = scan_directory(
                disk, directory, options.cold, map_all, frozenset(suspects.by_topic)
            )
            now = list(_findings(suspects))
            findings = [finding for finding in now if finding in earlier]
            if all(finding in earlier for finding in now if finding.bad):
                break
    seconds = (clock.monotonic_us() - began_us) / US_PER_S
    return _report(options, scan, findings, seconds)


def _refuse_other_directories(disk: Disk, directory: PurePath, cold: str | None) -> None:
    if cold is not None:
        require_cold(disk, cold)
    if not disk.is_directory(directory):
        raise RequestError(f"there is no directory {directory}; check the path")
    require_data_directory(disk, directory)


def _findings(scan: DirectoryScan) -> Iterator[VerifyFinding]:
    for finding in scan.wal.findings:
        if finding.path.name == PREPARED_NAME:
            continue  # made ahead by an owner that runs or was killed; a start does not trust it
        yield VerifyFinding(
            file=str(finding.path),
            offset=finding.offset,
            kind=_LOG_KINDS[finding.action],
            meaning=f"{finding.what}; {finding.why}",
            bad=finding.action.refuses,
        )
    for fault in scan.all_faults():
        yield VerifyFinding(
            file=str(fault.path),
            offset=fault.offset,
            kind=fault.kind.value,
            meaning=fault.what,
            bad=fault.bad,
        )


def _report(
    options: VerifyOptions, scan: DirectoryScan, findings: list[VerifyFinding], seconds: float
) -> VerifyJobReport:
    problems = Counter(finding.bad for finding in findings)[True]
    files = [file for shard in scan.wal.shards for file in shard.files]
    return VerifyJobReport(
        ok=not problems,
        source=options.path,
        log_files=len(files),
        groups=scan.wal.groups,
        frames=scan.wal.frames,
        **msgspec.structs.asdict(scan.counts),
        problems=problems,
        findings=tuple(findings),
        seconds=round(seconds, 3),
    )
