"""Records from other protocols for a partition of Kafka's log: one batch, or a new log start.

A batch is as durable as a producer with acks=all has it. Keys of writes are remembered while the
server runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from headwater.core.durability import Durability
from headwater.core.errors import FormatError, HeadConflictError, InvalidRequestError
from headwater.core.results import Appended, Deleted
from headwater.engine.kafka.partition import KafkaPartition
from headwater.engine.owner import Pending
from headwater.engine.partition import Produced
from headwater.engine.topics.publisher import Keyed, PendingAppend
from headwater.engine.topics.record_encoding import EncodedRecords, checked_key
from headwater.format.frame import FrameFlag, split_data
from headwater.format.kafka.mapping import to_kafka
from headwater.format.kafka.records import NewRecord, encode_batch
from headwater.model.idempotency import IdempotencyWindow

_HAS_TAG: Final = int(FrameFlag.HAS_TAG)
_HAS_NODE: Final = int(FrameFlag.HAS_NODE)


def append_records(
    partition: KafkaPartition,
    records: EncodedRecords,
    now: int,
    idempotency_key: str | None,
    expect_head_seq: int | None,
) -> PendingAppend:
    key = None if idempotency_key is None else checked_key(idempotency_key)
    if key is not None:
        repeat = _repeat(partition, key, now)
        if repeat is not None:
            return repeat
    next_seq = partition.next_offset
    if expect_head_seq is not None and expect_head_seq != next_seq:
        raise HeadConflictError(
            f"head_seq is {next_seq}, not {expect_head_seq}",
            detail={"head_seq": next_seq, "expect_head_seq": expect_head_seq},
        )
    batch = encode_batch(_new_records(records, now))
    write = PendingAppend(next_seq + 1, now)
    pending = partition.append(batch, Durability.FSYNC)
    if key is not None:
        _remember(partition, write, key)
    _when_done(pending, partial(_complete, partition, write, len(records)))
    return write


def delete_before(partition: KafkaPartition, before_seq: int) -> Pending[Deleted]:
    before = partition.earliest_seq
    response: Pending[Deleted] = Pending()

    def done(pending: Pending[int]) -> None:
        if pending.error is not None:
            response.fail(pending.error)
            return
        earliest, head = partition.earliest_seq, partition.visible_seq
        left = head + 1 - earliest
        response.succeed(Deleted(earliest - before, earliest, head, left, partition.bytes))

    upto = min(max(before_seq - 1, partition.log_start_offset), partition.high_watermark)
    _when_done(partition.delete_records(upto), done)
    return response


def _when_done(pending: Pending[Any], then: Callable[[Pending[Any]], None]) -> None:
    if pending.done:
        then(pending)
    else:
        pending.on_done = then


def _new_records(records: EncodedRecords, now: int) -> Iterator[NewRecord]:
    columns = zip(records.flags, records.nodes, records.tags, records.datas, strict=True)
    for position, (flags, node, tag, joined) in enumerate(columns):
        data, meta = split_data(flags, joined)
        try:
            fields = to_kafka(
                tag if flags & _HAS_TAG else None, node if flags & _HAS_NODE else None, data, meta
            )
        except FormatError as error:
            raise InvalidRequestError(f"record {position}: {error.reason}") from error
        yield NewRecord(now, *fields)


def _complete(
    partition: KafkaPartition, write: PendingAppend, records: int, pending: Pending[Produced]
) -> None:
    """The log has answered."""
    for keyed in write.keys:
        _keys(partition).abandon(keyed.key)
    if pending.error is not None:
        write.fail(pending.error)
        return
    first = pending.answer().base_offset + 1
    last = first + records - 1
    for keyed in write.keys:
        _keys(partition).remember(
            keyed.key, first, last, created=False, expires_ts=write.expires_ts
        )
    write.succeed(Appended(first, last, partition.visible_seq, False, False))


# -- keys of writes


def _keys(partition: KafkaPartition) -> IdempotencyWindow:
    """What most partitions never need is made when it is first used."""
    if partition.keys is None:
        partition.keys = IdempotencyWindow()
    return partition.keys


def _remember(partition: KafkaPartition, write: PendingAppend, key: bytes) -> None:
    keys = _keys(partition)
    write.keys = [Keyed(key, 0, 0)]  # its offsets are not known before the log answers
    write.expires_ts = write.ts + partition.settings.idempotency_window_ms
    keys.expire(write.ts)
    keys.begin(key, 0, 0, created=False, expires_ts=write.expires_ts, waiting=write)


def _repeat(partition: KafkaPartition, key: bytes, now: int) -> PendingAppend | None:
    known = _keys(partition).lookup(key, now)
    if known is None:
        return None
    repeat = PendingAppend(known.first_seq, now)
    if isinstance(known.pending, PendingAppend):
        known.pending.follow(repeat)
    else:
        head = partition.visible_seq
        repeat.result = Appended(known.first_seq, known.last_seq, head, False, deduped=True)
    return repeat
