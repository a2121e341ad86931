"""From the result of recovery to the state: topics, offsets of groups, producers, bitmaps.

Every index is read once, all its entries at once; of the log recovery has read only what is younger
than the checkpoint.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable

from pyroaring import BitMap64

from headwater.core.arrays import NDArray, numpy
from headwater.engine.kafka.core import KafkaCore
from headwater.engine.kafka.partition import KafkaPartition, KafkaTopic
from headwater.engine.kafka.topics import apply_event
from headwater.format.kafka.checkpoint import KafkaTopicMeta, SegmentMeta
from headwater.format.kafka.entry import PREFIX_BYTES, Runs, find_runs, group_by_key
from headwater.recovery.history.kafka import first_offset, is_own, own_runs
from headwater.recovery.kafka.repair import RecoveredKafka
from headwater.recovery.kafka.survey import TailBatch

_FEW_RUNS = 8
_LONG_RUNS = 16
"""With so many records a batch, ranges are faster than ids one by one."""


def restore(core: KafkaCore, recovered: RecoveredKafka, progress: Callable[[float], None]) -> None:
    checkpoint = recovered.checkpoint
    core.running_before_s = checkpoint.running_s
    for meta in checkpoint.topics:
        core.registry.add(_topic(core, meta))
    core.offsets.restore(checkpoint.groups)
    core.memberships.restore(checkpoint.memberships)
    core.next_producer_id = core.producer_ids_end = checkpoint.next_producer_id
    for batch in recovered.tail:
        if batch.event is not None:
            apply_event(core, batch.event, batch.first_id)
    core.next_producer_id = core.producer_ids_end
    for at, segment in enumerate(recovered.segments):
        progress(at / len(recovered.segments))
        _index(core, segment)
    for batch in recovered.tail:
        if batch.event is None and batch.header.producer_id >= 0:
            _replay_producer(core, batch)
    for topic in core.registry:
        for partition in topic.partitions:
            partition.next_offset = partition.high_watermark
            partition.log_start_offset = first_offset(
                partition.log_start_offset, partition.removed, partition.high_watermark
            )
            partition.sized_from = partition.log_start_offset
        core.note_limits(topic)


def _topic(core: KafkaCore, meta: KafkaTopicMeta) -> KafkaTopic:
    topic = KafkaTopic(
        core.calls,
        meta.org,
        meta.name,
        meta.topic_id,
        meta.made_id,
        len(meta.partitions),
        meta.configs,
    )
    for partition, saved in zip(topic.partitions, meta.partitions, strict=True):
        partition.removed = partition.high_watermark = saved.dropped
        partition.log_start_offset = saved.log_start
        if saved.producers:
            core.producers_of(partition).restore(saved.producers)
    if not any(saved.producers for saved in meta.partitions):
        topic.saved = meta
    return topic


def _index(core: KafkaCore, segment: SegmentMeta) -> None:
    """Give the entries of one index to the partitions they are of."""
    if not segment.entries:
        return
    runs = find_runs(core.files.entries(segment.number, segment.entries))
    for key, members in group_by_key(runs):
        partition = core.registry.by_key(key)
        if partition is None:
            continue  # of a topic that was dropped, or an event
        members = own_runs(runs, members, segment.base_id, partition.topic.made_id)
        starts = runs.starts[members] + segment.base_id
        if len(members) > _FEW_RUNS:
            _own(partition, runs, members, starts)
            continue
        # For a hundred thousand topics of a few batches each, arrays cost more than they save.
        rows = zip(
            starts.tolist(),
            runs.counts[members].tolist(),
            runs.entries["length"][members].tolist(),
            strict=True,
        )
        for first, count, length in rows:
            partition.own(first, first + count)
            if partition.high_watermark > partition.log_start_offset:
                partition.bytes += length + PREFIX_BYTES


def _own(
    partition: KafkaPartition,
    runs: Runs,
    members: NDArray[numpy.int64],
    starts: NDArray[numpy.int64],
) -> None:
    counts = runs.counts[members]
    ends = partition.high_watermark + numpy.cumsum(counts)
    live = ends > partition.log_start_offset
    sizes = runs.entries["length"][members][live].astype(numpy.int64) + PREFIX_BYTES
    partition.bytes += int(sizes.sum())
    if partition.ids is None:
        partition.ids = BitMap64()
    total = int(counts.sum())
    if total >= _LONG_RUNS * len(members):
        for first, count in zip(starts.tolist(), counts.tolist(), strict=True):
            partition.ids.add_range(first, first + count)
    else:
        before = numpy.repeat(numpy.cumsum(counts) - counts, counts)
        ids = numpy.repeat(starts, counts) + numpy.arange(total) - before
        partition.ids |= BitMap64(array("Q", ids.astype(numpy.uint64).tobytes()))
    partition.high_watermark += total


def _replay_producer(core: KafkaCore, batch: TailBatch) -> None:
    partition = core.registry.by_key(batch.key)
    if partition is None or not is_own(batch.first_id, partition.topic.made_id):
        return
    if partition.ids is None:
        return
    offset = partition.ids.rank(batch.first_id) - 1 + partition.removed
    # When it was written is not known: the times in it are the producer's. Not later than now.
    core.producers_of(partition).replay(batch.header, offset, core.running_s())
    core.changed(partition.topic)
