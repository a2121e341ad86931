"""What an operator may agree to when a start refuses Kafka's log.

Only an index says whose each record is; a log has the records. So an index that is
damaged is put together again from its log: places and lengths from the batches, owners from what is
left of the entries, and else from the base offset that each batch was given. Where the checkpoint
covers the index, its checksum proves the result. A record whose batch cannot be read becomes a
hole: its offset stays taken and is answered with an error. What leaves its place is in quarantine
before. No batch is changed.

Where even that is not known, the log is moved to quarantine as a whole and begun anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import ClassVar, Final

import msgspec

from headwater.disk import (
    Disk,
    cut_file,
    file_bytes,
    read_all,
    read_range,
    replace_file,
    sync_names,
    write_new_file,
)
from headwater.format.checksum import checksum64
from headwater.format.kafka.checkpoint import KafkaCheckpoint, SegmentMeta, encode_checkpoint
from headwater.format.kafka.names import CHECKPOINT_NAME, COPY_NAME, index_name, log_name
from headwater.format.names import QUARANTINE_DIRECTORY
from headwater.recovery.finding import RepairPlan, RepairStep, StepKind
from headwater.recovery.kafka.rebuild import RebuildError, Rebuilding, Rebuilt
from headwater.recovery.kafka.survey import (
    KafkaSurvey,
    assume_checkpoint,
    report_on_kafka,
    survey_kafka,
)
from headwater.recovery.kafka.table import LogVerdict, Stray
from headwater.recovery.repair import keep_copy, move_to_quarantine

_RECORD: Final = "record"
_RANGES_LISTED_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class KafkaRepairPlan(RepairPlan):
    store: ClassVar[str] = "kafka"
    checkpoint: KafkaCheckpoint | None = None
    """What both files of it are to say; None when the log is begun anew."""
    indexes: tuple[tuple[str, bytes], ...] = ()
    """Names, and what they are to have."""
    logs: tuple[tuple[str, int], ...] = ()
    """Names, and where they are to end."""
    moved: tuple[str, ...] = field(default=())

    def carry_out(self, disk: Disk) -> None:
        for name in self.moved:
            move_to_quarantine(disk, self.directory / name)
        if self.checkpoint is not None:  # it knows each index as it is, and as it is to be
            encoded = encode_checkpoint(self.checkpoint)
            for name in (CHECKPOINT_NAME, COPY_NAME):
                _replace(disk, self.directory / name, encoded)
        for name, contents in self.indexes:
            _replace(disk, self.directory / name, contents)
        for name, end in self.logs:
            _end_log(disk, self.directory / name, end)


def _end_log(disk: Disk, path: PurePath, end: int) -> None:
    """Not longer than this; a log that is missing is made, with nothing in it."""
    if not disk.exists(path):
        write_new_file(disk, path, b"")
        sync_names(disk, path.parent)
        return
    size = file_bytes(disk, path)
    if size <= end:
        return
    behind = read_range(disk, path, end, size - end).rstrip(b"\0")
    if behind:
        keep_copy(disk, path, f"{path.name}.{end}.damaged", behind)
    cut_file(disk, path, end)


def _replace(disk: Disk, path: PurePath, contents: bytes) -> None:
    if disk.exists(path):
        before = read_all(disk, path)
        if before == contents:
            return
        keep_copy(disk, path, f"{path.name}.{checksum64(before):016x}.damaged", before)
    replace_file(disk, path, contents)


def plan_kafka_repairs(disk: Disk, directory: PurePath) -> list[KafkaRepairPlan]:
    """Empty when a start refuses nothing. Raises when a newer version wrote the log."""
    if not disk.is_directory(directory):
        return []
    survey = survey_kafka(disk, directory)
    report = report_on_kafka(survey)
    report.raise_if_newer()
    if not report.refusals:
        return []
    try:
        if survey.checkpoint is None:
            return [_without_checkpoint(disk, directory)]
        return [_with_checkpoint(disk, survey, survey.checkpoint)]
    except RebuildError as reason:
        return [_anew(disk, survey, reason)]


# -- with a checkpoint: what it covers is kept, or is a hole


def _with_checkpoint(
    disk: Disk, survey: KafkaSurvey, checkpoint: KafkaCheckpoint
) -> KafkaRepairPlan:
    directory = survey.directory
    rebuilding = Rebuilding(disk, survey, checkpoint)
    steps: list[RepairStep] = []
    metas: list[SegmentMeta] = []
    indexes: list[tuple[str, bytes]] = []
    logs: list[tuple[str, int]] = []
    known = {meta.number for meta in checkpoint.segments}
    for done in rebuilding.run():
        steps += _repair_steps(directory, done)
        if done.changed:
            indexes.append((index_name(done.meta.number), done.contents))
        if done.log_end is not None:
            logs.append((log_name(done.meta.log_number), done.log_end))
        if done.meta.number in known:
            metas.append(done.meta)
    state = checkpoint
    if tuple(metas) != checkpoint.segments:
        state = msgspec.structs.replace(checkpoint, segments=tuple(metas), clean=False)
    return KafkaRepairPlan(directory, tuple(steps), state, tuple(indexes), tuple(logs))


def _repair_steps(directory: PurePath, done: Rebuilt) -> Iterator[RepairStep]:
    index = directory / index_name(done.meta.number)
    if done.changed:
        what = "put together again from its log"
        if done.is_proven:
            what += "; its checksum proves that nothing is missing"
        yield RepairStep(StepKind.REWRITE, index, what, done.offset)
    if done.log_end is not None:
        log = directory / log_name(done.meta.log_number)
        yield RepairStep(StepKind.REWRITE, log, f"ends at byte {done.log_end} from now on")
    if done.holes:
        lost = sum(done.holes.values())
        what = f"records that cannot be read: {_lost_ranges(done)}"
        yield RepairStep(StepKind.SKIP, index, what, done.offset, lost=lost, unit=_RECORD)


def _lost_ranges(done: Rebuilt) -> str:
    """Which offsets of which partitions, as far as a line takes them."""
    some = [
        f"{name} offset {first}" + (f" to {last}" if last > first else "")
        for name, first, last in done.lost[:_RANGES_LISTED_MAX]
    ]
    if len(done.lost) > _RANGES_LISTED_MAX:
        some.append(f"and {len(done.lost) - _RANGES_LISTED_MAX} more")
    events = done.holes[""]
    if events:
        some.append(f"{events} of what the log says about topics and groups")
    return ", ".join(some) or "of no partition"


# -- without one


def _without_checkpoint(disk: Disk, directory: PurePath) -> KafkaRepairPlan:
    """Where nothing was ever removed from it, the log itself tells all that a checkpoint has."""
    empty = KafkaCheckpoint()
    survey = assume_checkpoint(disk, directory, empty)
    if report_on_kafka(survey).refusals:
        raise RebuildError(
            "both checkpoints are damaged, and the log does not go back to its beginning"
        )
    if any(each.log is LogVerdict.TORN for each in survey.segments) or any(
        stray in (Stray.UNFINISHED, Stray.REWRITE) for _, stray in survey.strays
    ):
        raise RebuildError("both checkpoints are damaged, and so is the log, or it was rewritten")
    what = "from the log, which goes back to its beginning; nothing is given up"
    step = RepairStep(StepKind.REWRITE, directory / CHECKPOINT_NAME, what)
    return KafkaRepairPlan(directory, (step,), empty)


def _anew(disk: Disk, survey: KafkaSurvey, reason: RebuildError) -> KafkaRepairPlan:
    directory, checkpoint = survey.directory, survey.checkpoint
    names = [name for name in disk.list_directory(directory) if name != QUARANTINE_DIRECTORY]
    # The checkpoint last: without it the others are damage, and with it alone there is nothing.
    names.sort(key=lambda name: name.startswith(CHECKPOINT_NAME))
    topics = "all topics" if checkpoint is None else f"{len(checkpoint.topics)} topics"
    records = sum(each.counted for each in survey.segments)
    what = f"begun anew: {topics} of Kafka's clients are given up, because {reason}"
    step = RepairStep(
        StepKind.QUARANTINE, directory, what, lost=records or None, unit=_RECORD, reason=str(reason)
    )
    return KafkaRepairPlan(directory, (step,), None, moved=tuple(names))


__all__ = ["KafkaRepairPlan", "plan_kafka_repairs"]
