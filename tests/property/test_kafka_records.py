"""Kafka records: whatever is written is read again, here and by aiokafka; noise is refused."""

from __future__ import annotations

import aiokafka.record.memory_records
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.format.kafka.batch import CODECS, HEADER_BYTES, BatchError, check_batch
from headwater.format.kafka.records import NewRecord, decode_records, encode_batch

numbers = st.integers(0, 2**42) | st.integers(0, 300)
parts = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=20), parts), max_size=3)
records = st.builds(NewRecord, numbers, parts, parts, headers)


@given(st.lists(records, min_size=1, max_size=80), st.integers(0, len(CODECS) - 1))
@settings(max_examples=80, deadline=None)
def test_records_come_back_here_and_in_aiokafka(chosen: list[NewRecord], codec: int) -> None:
    batch = encode_batch(chosen, codec=codec)
    assert check_batch(batch).record_count == len(chosen)
    wanted = [(index, *each[:3], list(each.headers)) for index, each in enumerate(chosen)]
    assert decode_records(batch) == wanted
    theirs = aiokafka.record.memory_records.MemoryRecords(batch).next_batch()
    found = [(each.offset, each.timestamp, each.key, each.value, each.headers) for each in theirs]
    assert found == wanted


@given(st.binary(max_size=300), st.integers(1, 5))
@settings(max_examples=150, deadline=None)
def test_noise_is_records_or_a_batch_error(noise: bytes, count: int) -> None:
    start = encode_batch([NewRecord(0, None, None)] * count)[:HEADER_BYTES]
    batch = bytearray(start + noise)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    try:
        assert len(decode_records(batch)) == count
    except BatchError:
        return
