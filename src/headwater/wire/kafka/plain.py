"""Produces as nearly all producers send them: one sound batch for one partition.

What is plain is read in one step, from the header of the request to the CRC of the batch. What is
not (several partitions, a transaction, anything that is wrong) is nobody's business here: it is
read by the table of fields, and whatever is to be said about it is said there.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from headwater.core.errors import FormatError
from headwater.format.kafka.batch import BatchHeader, check_batch, split_batches
from headwater.native import compiled
from headwater.wire.kafka.apis import ApiKey, is_supported
from headwater.wire.kafka.codec import decode_request
from headwater.wire.kafka.errors import ProtocolError
from headwater.wire.kafka.headers import read_request_header, response_frame

_native: Final = compiled("batches")


class PlainProduce(NamedTuple):
    version: int
    correlation_id: int
    acks: int
    name: str
    partition: int
    batch: memoryview
    header: BatchHeader


def read_plain(frame: memoryview) -> PlainProduce | None:
    """The request, if it is one of these and its batch may be stored."""
    if _native is None:
        return _read_by_the_table(frame)
    found = _native.read_plain(frame)
    if found is None:
        return None
    version, number, acks, name, partition, start, end, header = found
    batch = frame[start:end]
    return PlainProduce(version, number, acks, name, partition, batch, BatchHeader._make(header))


def _read_by_the_table(frame: memoryview) -> PlainProduce | None:
    try:
        header = read_request_header(frame)
        if header.api_key != ApiKey.PRODUCE or not is_supported(ApiKey.PRODUCE, header.api_version):
            return None
        values = decode_request(ApiKey.PRODUCE, header.api_version, frame, header.body_at)
        if values["transactional_id"] is not None or len(values["topic_data"]) != 1:
            return None
        (topic,) = values["topic_data"]
        if len(topic["partition_data"]) != 1:
            return None
        (row,) = topic["partition_data"]
        batch = memoryview(row["records"] or b"")
        if len(split_batches(batch)) != 1:
            return None
        checked = check_batch(batch)
    except (ProtocolError, FormatError):
        return None
    return PlainProduce(
        header.api_version,
        header.correlation_id,
        values["acks"],
        topic["name"],
        row["index"],
        batch,
        checked,
    )


def produced_frame(
    plain: PlainProduce, base_offset: int, append_time_ms: int, log_start_offset: int
) -> bytes:
    """The whole answer to one that went well."""
    if _native is not None:
        written: bytes | None = _native.produced(
            plain.version,
            plain.correlation_id,
            plain.name,
            plain.partition,
            base_offset,
            append_time_ms,
            log_start_offset,
        )
        if written is not None:
            return written
    row = {
        "index": plain.partition,
        "error_code": 0,
        "base_offset": base_offset,
        "log_append_time_ms": append_time_ms,
        "log_start_offset": log_start_offset,
    }
    topic = {"name": plain.name, "partition_responses": [row]}
    values = {"responses": [topic], "throttle_time_ms": 0}
    pieces = response_frame(ApiKey.PRODUCE, plain.version, plain.correlation_id, values)
    return b"".join(pieces)
