"""Kafka's shared log, read and checked against itself: checkpoint, indexes, every batch.

In three steps, so that segments can be checked anywhere: a plan of what there should be, a check
of each segment by itself, and what only all checks together can show. Nothing is changed.

What the checkpoint covers must be as it was, and so must everything in a full segment. Behind
that, in the last segment, the first batch that is not whole ends the log, as it does at a start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final

from headwater.disk import Disk
from headwater.format.checksum import checksum64
from headwater.format.kafka.checkpoint import KafkaCheckpoint, SegmentMeta, encode_checkpoint
from headwater.format.kafka.entry import count_entries, entry_key
from headwater.format.kafka.events import INTERNAL_KEY, PREDECESSOR_MISSING, TopicMadeEvent
from headwater.format.kafka.names import index_name, log_name
from headwater.format.kafka.topic_hash import topic_hash
from headwater.recovery.kafka.survey import judge_begun, list_names, scan_checkpoints
from headwater.recovery.kafka.topics import SeenTopics
from headwater.recovery.kafka.verdict import CheckpointVerdict, Stray
from headwater.recovery.kafka.verify_segment import KafkaSegment, KafkaSegmentCheck, misplaced
from headwater.store.pair import read_all
from headwater.store.verify import FaultKind, VerifyFault, listed

_LEFT: Final = "nothing leads to this file; left by work that was interrupted or goes on"


@dataclass(slots=True)
class KafkaPlan:
    directory: PurePath
    faults: list[VerifyFault] = field(default_factory=list)
    checkpoint: KafkaCheckpoint | None = None
    segments: list[KafkaSegment] = field(default_factory=list)


def plan_kafka(disk: Disk, directory: PurePath) -> KafkaPlan:
    """What the names and the checkpoint say. FileNotFoundError: plan again."""
    plan = KafkaPlan(directory)
    if not disk.is_directory(directory):
        return plan
    names = list_names(disk, directory)
    for name in (*names.rewrites, *names.temporaries):
        plan.faults.append(VerifyFault(directory / name, None, _LEFT, False, FaultKind.UNFINISHED))
    for name in names.foreign:
        what = "not a name this software gives"
        plan.faults.append(VerifyFault(directory / name, None, what, False, FaultKind.NAME))
    checkpoint = _checkpoint(disk, bool(names.indexes), plan)
    if checkpoint is None:
        return plan
    known = checkpoint.segments
    young = names.later(checkpoint)
    later = [n for n in young if count_entries(read_all(disk, directory / index_name(n)))]
    root, as_of = str(directory), checkpoint.as_of
    for at, meta in enumerate(known, 1):
        listed_full = at < len(known)
        plan.segments.append(
            KafkaSegment(root, meta, listed_full or bool(later), listed_full, as_of)
        )
    for at, number in enumerate(later, 1):
        # Where its ids begin does not matter: all of it is younger than the checkpoint.
        fresh = SegmentMeta(number, as_of, 0, 0, checksum64(b""), number)
        plan.segments.append(KafkaSegment(root, fresh, at < len(later), False, as_of))
    begun = {n for n in young[-1:] if n in names.logs and _only_begun(disk, directory, n)}
    emptied = {
        n
        for n in young
        if n not in {*later, *begun} and judge_begun(disk, directory, n) is Stray.EMPTIED
    }
    for number in sorted(emptied):
        path = directory / index_name(number)
        plan.faults.append(VerifyFault(path, 0, Stray.EMPTIED.value, True, FaultKind.INDEX))
    known_well = begun | emptied
    plan.faults += _left_over(plan, names.logs - known_well, names.indexes - known_well)
    return plan


def _only_begun(disk: Disk, directory: PurePath, number: int) -> bool:
    """A segment that waits for its first batch: every new log has one, and each roll makes one."""
    names = (index_name(number), log_name(number))
    return not any(read_all(disk, directory / name).strip(b"\x00") for name in names)


def _checkpoint(disk: Disk, needed: bool, plan: KafkaPlan) -> KafkaCheckpoint | None:
    """What a start goes on from; both files are compared with it."""
    checkpoints = scan_checkpoints(disk, plan.directory)
    plan.checkpoint = checkpoints.chosen.checkpoint
    for scan in checkpoints:
        if scan.verdict is CheckpointVerdict.ABSENT:
            what = "missing: without it, where the segments begin is not known"
            if plan.checkpoint is not None:
                what = "missing; the other one is whole, and the next checkpoint writes both"
            if needed:
                bad = scan is checkpoints.first
                plan.faults.append(VerifyFault(scan.path, None, what, bad, FaultKind.MISSING))
        elif scan.checkpoint is None:
            fault = VerifyFault(scan.path, scan.offset or 0, scan.what, True, FaultKind.CHECKPOINT)
            plan.faults.append(fault)
        elif encode_checkpoint(scan.checkpoint) != scan.contents:
            what = "bytes that mean nothing are not those that were written"
            plan.faults.append(VerifyFault(scan.path, None, what, False, FaultKind.CHECKPOINT))
    return plan.checkpoint


def _left_over(plan: KafkaPlan, logs: set[int], indexes: set[int]) -> Iterator[VerifyFault]:
    metas = [segment.meta for segment in plan.segments]
    led_to = {meta.log_number for meta in metas}
    led_to |= {meta.rewrite.log_number for meta in metas if meta.rewrite is not None}
    names = [index_name(n) for n in sorted(indexes - {meta.number for meta in metas} - led_to)]
    names += [log_name(n) for n in sorted(logs - led_to)]
    for name in names:
        yield VerifyFault(plan.directory / name, None, _LEFT, False, FaultKind.UNFINISHED)


def join_kafka(plan: KafkaPlan, checks: Sequence[KafkaSegmentCheck]) -> list[VerifyFault]:
    """All faults: those of the plan, those of each segment, and batches of no topic."""
    faults = [*plan.faults, *(fault for check in checks for fault in check.faults)]
    if plan.checkpoint is None:
        return faults
    topics = SeenTopics(plan.checkpoint)
    for segment, check in zip(plan.segments, checks, strict=True):
        path = plan.directory / log_name(segment.meta.log_number)
        strange = list(_strangers(topics, check))
        problems = [(at, "a batch of a topic that does not exist") for at in strange]
        bad = segment.sealed or any(at < check.synced_end for at, _ in problems)
        faults += listed(path, problems, FaultKind.BATCH, bad=bad)
    if all(not check.faults for check in checks):
        faults += _missing(plan, checks)
        faults += _misplaced_chains(plan, checks)
    return faults


def _strangers(topics: SeenTopics, check: KafkaSegmentCheck) -> Iterator[int]:
    """Where the first batch of each topic stands that does not exist by then."""
    events = sorted(check.made, key=lambda each: each[0])
    for key, at in sorted(check.young_keys.items(), key=lambda each: each[1]):
        while events and events[0][0] < at:
            topics.take_in(events.pop(0)[1], 0)
        if key != INTERNAL_KEY and not topics.owns(key):
            yield at
    for _, event in events:
        topics.take_in(event, 0)


def _missing(plan: KafkaPlan, checks: Sequence[KafkaSegmentCheck]) -> Iterator[VerifyFault]:
    """Younger segments begin where the one before them ends."""
    assert plan.checkpoint is not None
    known, end = plan.checkpoint.segments, 0
    for at, check in enumerate(checks):
        base_id = known[at].base_id if at < len(known) else end
        if check.begun not in (None, base_id):
            path = plan.directory / log_name(plan.segments[at].meta.number)
            yield VerifyFault(path, 0, PREDECESSOR_MISSING, True, FaultKind.MISSING)
            return
        end = base_id + check.entries


def _misplaced_chains(
    plan: KafkaPlan, checks: Sequence[KafkaSegmentCheck]
) -> Iterator[VerifyFault]:
    """Base offsets go on from segment to segment, for topics that the checkpoint knows.

    From the log start on: of dead records segments in between may be gone, so that they cannot
    be counted, and readers are not told where they were.
    """
    assert plan.checkpoint is not None
    remade = {
        topic_hash(event.org, event.name)
        for check in checks
        for _, event in check.made
        if isinstance(event, TopicMadeEvent)
    }
    made: dict[bytes, int] = {}
    starts: dict[bytes, int] = {}
    following: dict[bytes, int] = {}
    for topic in plan.checkpoint.topics:
        hashed = topic_hash(topic.org, topic.name)
        for number, partition in enumerate(() if hashed in remade else topic.partitions):
            key = entry_key(topic.org, hashed, number)
            made[key], following[key] = topic.made_id, partition.dropped
            starts[key] = partition.log_start
    for segment, check in zip(plan.segments, checks, strict=True):
        problems = []
        for chain in sorted(check.chains, key=lambda each: each.offset):
            if chain.key not in made or chain.first_id <= made[chain.key]:
                continue
            known = following[chain.key]
            is_live = known + chain.records > starts[chain.key]
            if is_live and chain.base is not None and chain.base != known:
                problems.append((chain.offset, misplaced(chain.base, known)))
            following[chain.key] = known + chain.records
        path = plan.directory / log_name(segment.meta.log_number)
        yield from listed(path, problems, FaultKind.BATCH, bad=False)
