"""Kafka's shared log, looked at and held against itself: checkpoint, indexes, every batch.

In three steps, so that segments can be looked at anywhere: a plan of what there should be, a look
at each segment by itself, and what only all looks together can tell. Nothing is changed.

What the checkpoint vouches for must be as it was, and so must everything in a full segment. Behind
that, in the last segment, the first batch that is not whole ends the log, as it does at a start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final

from headwater.core.errors import FormatError, NewerFormatError
from headwater.disk import Disk
from headwater.disk.whole import TEMPORARY_SUFFIX
from headwater.format.checksum import checksum64
from headwater.format.kafka.checkpoint import (
    KafkaCheckpoint,
    SegmentMeta,
    decode_checkpoint,
    encode_checkpoint,
)
from headwater.format.kafka.entry import count_entries, entry_key
from headwater.format.kafka.events import (
    INTERNAL_KEY,
    PREDECESSOR_MISSING,
    PartitionsAdded,
    TopicMade,
)
from headwater.format.kafka.names import (
    CHECKPOINT_NAME,
    REWRITE_SUFFIX,
    SPARE_NAME,
    KafkaFile,
    index_name,
    log_name,
    parse_name,
)
from headwater.format.kafka.topic_hash import topic_hash
from headwater.recovery.verifying_kafka_segment import KafkaLook, KafkaSegment, misplaced
from headwater.store.pair import read_all
from headwater.store.verifying import Fault, FaultKind, listed

_LEFT: Final = "nothing leads to this file; left by work that was interrupted or goes on"


@dataclass(slots=True)
class KafkaPlan:
    directory: PurePath
    faults: list[Fault] = field(default_factory=list)
    checkpoint: KafkaCheckpoint | None = None
    segments: list[KafkaSegment] = field(default_factory=list)


def plan_kafka(disk: Disk, directory: PurePath) -> KafkaPlan:
    """What the names and the checkpoint tell. FileNotFoundError: look again."""
    plan = KafkaPlan(directory)
    if not disk.is_directory(directory):
        return plan
    logs: set[int] = set()
    indexes: set[int] = set()
    for name in disk.list_directory(directory):
        parsed, path = parse_name(name), directory / name
        if parsed is not None:
            (logs if parsed[1] is KafkaFile.LOG else indexes).add(parsed[0])
        elif name.endswith((REWRITE_SUFFIX, TEMPORARY_SUFFIX)):
            plan.faults.append(Fault(path, None, _LEFT, False, FaultKind.UNFINISHED))
        elif name not in (CHECKPOINT_NAME, SPARE_NAME):
            what = "not a name this software gives"
            plan.faults.append(Fault(path, None, what, False, FaultKind.NAME))
    checkpoint = _checkpoint(disk, directory, bool(indexes), plan)
    if checkpoint is None:
        return plan
    known = checkpoint.segments
    last_known = known[-1].number if known else -1
    young = [number for number in sorted(logs & indexes) if number > last_known]
    later = [
        number
        for number in sorted(indexes)
        if number > last_known and count_entries(read_all(disk, directory / index_name(number)))
    ]
    place, as_of = str(directory), checkpoint.as_of
    for at, meta in enumerate(known, 1):
        listed_full = at < len(known)
        plan.segments.append(
            KafkaSegment(place, meta, listed_full or bool(later), listed_full, as_of)
        )
    for at, number in enumerate(later, 1):
        # Where its ids begin is not asked: all of it is younger than the checkpoint.
        fresh = SegmentMeta(number, as_of, 0, 0, checksum64(b""), number)
        plan.segments.append(KafkaSegment(place, fresh, at < len(later), False, as_of))
    begun = {young[-1]} if young and _only_begun(disk, directory, young[-1]) else set()
    plan.faults += _left_over(plan, logs - begun, indexes - begun)
    return plan


def _only_begun(disk: Disk, directory: PurePath, number: int) -> bool:
    """A segment that waits for its first batch: every new log has one, and each roll makes one."""
    names = (index_name(number), log_name(number))
    return not any(read_all(disk, directory / name).strip(b"\x00") for name in names)


def _checkpoint(
    disk: Disk, directory: PurePath, needed: bool, plan: KafkaPlan
) -> KafkaCheckpoint | None:
    path = directory / CHECKPOINT_NAME
    if not disk.exists(path):
        if needed:
            what = "missing: without it nobody knows where the segments begin"
            plan.faults.append(Fault(path, None, what, True, FaultKind.MISSING))
        return None
    contents = read_all(disk, path)
    try:
        plan.checkpoint = decode_checkpoint(contents)
    except FormatError as error:
        fault = Fault(path, error.offset, error.reason, True, FaultKind.CHECKPOINT)
        plan.faults.append(fault)
        return None
    except NewerFormatError as error:
        plan.faults.append(Fault(path, 0, error.what, True, FaultKind.CHECKPOINT))
        return None
    if encode_checkpoint(plan.checkpoint) != contents:
        what = "bytes that mean nothing are not those that were written"
        plan.faults.append(Fault(path, None, what, False, FaultKind.CHECKPOINT))
    return plan.checkpoint


def _left_over(plan: KafkaPlan, logs: set[int], indexes: set[int]) -> Iterator[Fault]:
    metas = [segment.meta for segment in plan.segments]
    led_to = {meta.log_number for meta in metas}
    led_to |= {meta.rewrite.log_number for meta in metas if meta.rewrite is not None}
    names = [index_name(n) for n in sorted(indexes - {meta.number for meta in metas} - led_to)]
    names += [log_name(n) for n in sorted(logs - led_to)]
    for name in names:
        yield Fault(plan.directory / name, None, _LEFT, False, FaultKind.UNFINISHED)


def join_kafka(plan: KafkaPlan, looks: Sequence[KafkaLook]) -> list[Fault]:
    """All faults: those of the plan, those of each segment, and batches of no topic."""
    faults = [*plan.faults, *(fault for look in looks for fault in look.faults)]
    if plan.checkpoint is None:
        return faults
    registered = _registered(plan.checkpoint, [event for look in looks for event in look.made])
    for segment, look in zip(plan.segments, looks, strict=True):
        path = plan.directory / log_name(segment.meta.log_number)
        strange = [(at, key) for key, at in look.young_keys.items() if key not in registered]
        places = [(at, "a batch of a topic that does not exist") for at, _ in sorted(strange)]
        bad = segment.sealed or any(at < look.synced_end for at, _ in places)
        faults += listed(path, places, FaultKind.BATCH, bad=bad)
    if all(not look.faults for look in looks):
        faults += _missing(plan, looks)
        faults += _misplaced_chains(plan, looks)
    return faults


def _missing(plan: KafkaPlan, looks: Sequence[KafkaLook]) -> Iterator[Fault]:
    """Younger segments begin where the one before them ends."""
    assert plan.checkpoint is not None
    known, end = plan.checkpoint.segments, 0
    for at, look in enumerate(looks):
        base_id = known[at].base_id if at < len(known) else end
        if look.begun not in (None, base_id):
            path = plan.directory / log_name(plan.segments[at].meta.number)
            yield Fault(path, 0, PREDECESSOR_MISSING, True, FaultKind.MISSING)
            return
        end = base_id + look.entries


def _misplaced_chains(plan: KafkaPlan, looks: Sequence[KafkaLook]) -> Iterator[Fault]:
    """Base offsets go on from segment to segment, for topics that the checkpoint knows.

    From the log start on: of dead records segments in between may be gone, so that they cannot
    be counted, and nobody is told where they were.
    """
    assert plan.checkpoint is not None
    remade = {
        topic_hash(event.org, event.name)
        for look in looks
        for event in look.made
        if isinstance(event, TopicMade)
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
    for segment, look in zip(plan.segments, looks, strict=True):
        places = []
        for chain in sorted(look.chains, key=lambda each: each.place):
            if chain.key not in made or chain.first_id <= made[chain.key]:
                continue
            known = following[chain.key]
            is_live = known + chain.records > starts[chain.key]
            if is_live and chain.base is not None and chain.base != known:
                places.append((chain.place, misplaced(chain.base, known)))
            following[chain.key] = known + chain.records
        path = plan.directory / log_name(segment.meta.log_number)
        yield from listed(path, places, FaultKind.BATCH, bad=False)


def _registered(
    checkpoint: KafkaCheckpoint, events: Sequence[TopicMade | PartitionsAdded]
) -> set[bytes]:
    """Whose batches may be there."""
    keys = {INTERNAL_KEY}
    names: dict[bytes, tuple[int, bytes]] = {}

    def add(topic_id: bytes, partitions: int) -> None:
        keys.update(entry_key(*names[topic_id], number) for number in range(partitions))

    for topic in checkpoint.topics:
        names[topic.topic_id] = (topic.org, topic_hash(topic.org, topic.name))
        add(topic.topic_id, len(topic.partitions))
    for event in events:
        if isinstance(event, TopicMade):
            names[event.topic_id] = (event.org, topic_hash(event.org, event.name))
            add(event.topic_id, event.partitions)
        elif event.topic_id in names:
            add(event.topic_id, event.total)
    return keys
