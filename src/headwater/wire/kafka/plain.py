"""Produces as producers send them: one sound batch for each partition, mostly for one alone.

What is plain is read in one step, from the header of the request to the CRC of the batches. What is
not (several batches for a partition, a transaction, anything that is wrong) is not handled
here: it is read by the table of fields, and whatever is to be said about it is said there.
"""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple

from headwater.core.errors import FormatError
from headwater.format.kafka.batch import BatchHeader, check_batch, split_batches
from headwater.native import compiled
from headwater.wire.kafka.apis import ApiKey, ProtocolError, is_supported
from headwater.wire.kafka.codec import decode_request, read_request_header, response_frame

_native: Final = compiled("batches")


class PlainRow(NamedTuple):
    """What is for one partition."""

    name: str
    partition: int
    batch: memoryview
    header: BatchHeader


class PlainProduce(NamedTuple):
    version: int
    correlation_id: int
    acks: int
    rows: list[PlainRow]
    """At least one, in the order of the request: those of a topic stand together."""


def read_plain(frame: memoryview) -> PlainProduce | None:
    """The request, if it is one of these and its batches may be stored."""
    if _native is None:
        return _read_by_the_table(frame)
    parsed = _native.read_plain(frame)
    if parsed is None:
        return None
    version, correlation_id, acks, rows = parsed
    return PlainProduce(
        version,
        correlation_id,
        acks,
        [
            PlainRow(name, partition, frame[start:end], BatchHeader._make(header))
            for name, partition, start, end, header in rows
        ],
    )


def _read_by_the_table(frame: memoryview) -> PlainProduce | None:
    try:
        header = read_request_header(frame)
        if header.api_key != ApiKey.PRODUCE or not is_supported(ApiKey.PRODUCE, header.api_version):
            return None
        values = decode_request(ApiKey.PRODUCE, header.api_version, frame, header.body_at)
        topics = values["topic_data"]
        if values["transactional_id"] is not None or not topics:
            return None
        rows: list[PlainRow] = []
        for topic in topics:
            if not topic["partition_data"]:
                return None
            for row in topic["partition_data"]:
                batch = memoryview(row["records"] or b"")
                if len(split_batches(batch)) != 1:
                    return None
                rows.append(PlainRow(topic["name"], row["index"], batch, check_batch(batch)))
    except (ProtocolError, FormatError):
        return None
    return PlainProduce(header.api_version, header.correlation_id, values["acks"], rows)


def produced_frame(
    plain: PlainProduce, base_offset: int, append_time_ms: int, log_start_offset: int
) -> bytes:
    """The whole answer to one with one row, which went well."""
    ((name, partition, _, _),) = plain.rows
    if _native is not None:
        written: bytes | None = _native.produced(
            plain.version,
            plain.correlation_id,
            name,
            partition,
            base_offset,
            append_time_ms,
            log_start_offset,
        )
        if written is not None:
            return written
    row = {
        "index": partition,
        "error_code": 0,
        "base_offset": base_offset,
        "log_append_time_ms": append_time_ms,
        "log_start_offset": log_start_offset,
    }
    topic = {"name": name, "partition_responses": [row]}
    values = {"responses": [topic], "throttle_time_ms": 0}
    chunks = response_frame(ApiKey.PRODUCE, plain.version, plain.correlation_id, values)
    return b"".join(chunks)


def plain_values(plain: PlainProduce) -> dict[str, Any]:
    """The request as the table of fields gives it; each row has the `header` of its batch too."""
    return {
        "transactional_id": None,
        "acks": plain.acks,
        "topic_data": [
            {
                "name": name,
                "partition_data": [
                    {"index": row.partition, "records": row.batch, "header": row.header}
                    for row in rows
                ],
            }
            for name, rows in groupby(plain.rows, attrgetter("name"))
        ],
    }
