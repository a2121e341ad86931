"""Plain produces: compiled and by the table of fields they are read alike, and placed alike."""

from __future__ import annotations

import os
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.format.crc32c import crc32c
from headwater.format.kafka import batch as batch_format
from headwater.format.kafka.batch import HEADER_BYTES, assign_offset
from headwater.native import compiled
from headwater.wire.kafka import plain as plain_module
from headwater.wire.kafka.apis import ApiKey
from headwater.wire.kafka.codec import request_frame
from headwater.wire.kafka.plain import (
    PlainProduce,
    PlainRow,
    plain_values,
    produced_frame,
    read_plain,
)
from tests.unit.native.twins import is_compiled, pure

pytestmark = is_compiled

SIZE_BYTES = 4
FLEXIBLE = 9
every_version = pytest.mark.parametrize("version", range(3, 10))
versions = st.integers(3, 9)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
names = st.text(max_size=150)


def sealed(
    records: bytes,
    *,
    attributes: int = 0,
    count: int = 1,
    delta: int | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
    magic: int = 2,
    longer: int = 0,
) -> bytes:
    """A batch that is what its CRC says, whatever else may be wrong with it."""
    last = count - 1 if delta is None else delta
    checked = struct.pack(">hiqqqhii", attributes, last, 1_000, 2_000, *producer, count) + records
    length = HEADER_BYTES - 12 + len(records) + longer
    return struct.pack(">qiibI", 77, length, 3, magic, crc32c(checked)) + checked


batches = st.builds(
    sealed,
    st.binary(max_size=300),
    attributes=st.integers(0, 63),
    count=st.integers(-1, 60),
    delta=st.none() | st.integers(-1, 60),
    producer=st.tuples(st.integers(-1, 2), st.integers(-1, 2), st.integers(-1, 2)),
    magic=st.sampled_from((1, 2, 2, 2)),
    longer=st.sampled_from((-1, 0, 0, 0, 1)),
)
sound = sealed(b"r" * 100, count=3)


ONE = {"index": 0, "records": sound}


def asked(rows: list[Any], name: str = "orders", *, acks: int = -1) -> dict[str, Any]:
    return {
        "transactional_id": None,
        "acks": acks,
        "timeout_ms": 30_000,
        "topic_data": [{"name": name, "partition_data": rows}],
    }


def frame_of(
    version: int, values: dict[str, Any], client: str | None = "c", number: int = 5
) -> Any:
    return memoryview(request_frame(ApiKey.PRODUCE, version, number, client, values)[SIZE_BYTES:])


def read_by_both(frame: Any) -> PlainProduce | None:
    """By both alike; only what has tagged fields may be left to the table."""
    view = memoryview(frame)
    found, wanted = read_plain(view), pure(read_plain, plain_module, view)
    if found is None and wanted is not None:
        assert wanted.version == FLEXIBLE
    else:
        assert found == wanted
    return found


@given(versions, batches, names, int32s, int32s, st.none() | st.text(max_size=20))
def test_a_produce_of_one_batch_is_read_alike(
    version: int, batch: bytes, name: str, partition: int, number: int, client: str | None
) -> None:
    rows = [{"index": partition, "records": batch}]
    frame = frame_of(version, asked(rows, name), client, number)
    found, wanted = read_plain(frame), pure(read_plain, plain_module, frame)
    assert found == wanted


@given(versions, st.lists(st.tuples(names, st.lists(batches | st.just(sound)))), int32s)
def test_a_produce_of_many_batches_is_read_alike(
    version: int, topics: list[tuple[str, list[bytes]]], number: int
) -> None:
    values = asked([])
    values["topic_data"] = [
        {
            "name": name,
            "partition_data": [{"index": at, "records": each} for at, each in enumerate(own)],
        }
        for name, own in topics
    ]
    frame = frame_of(version, values, "c", number)
    assert read_plain(frame) == pure(read_plain, plain_module, frame)


@every_version
def test_a_produce_for_several_partitions_is_plain_and_told_as_the_table_does(
    version: int,
) -> None:
    values = asked([{"index": at, "records": sealed(b"r" * at * 10, count=at)} for at in (3, 1)])
    values["topic_data"] += asked([ONE], "payments")["topic_data"]
    found = read_by_both(frame_of(version, values))
    assert found is not None
    told = plain_values(found)
    for topic in told["topic_data"]:
        for row in topic["partition_data"]:
            assert row.pop("header") == batch_format.check_batch(row["records"])
    del values["timeout_ms"]
    assert told == values


@every_version
@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_what_producers_send_is_plain(version: int, acks: int) -> None:
    frame = frame_of(version, asked([{"index": 3, "records": sound}], acks=acks))
    found = read_by_both(frame)
    assert found is not None
    assert (found.version, found.correlation_id, found.acks) == (version, 5, acks)
    (row,) = found.rows
    assert (row.name, row.partition, bytes(row.batch)) == ("orders", 3, sound)
    assert row.header == batch_format.check_batch(sound)


def test_a_batch_that_is_long_enough_to_let_others_run_meanwhile_is_plain() -> None:
    long = sealed(os.urandom(300_000), count=1_000)
    found = read_by_both(frame_of(9, asked([{"index": 0, "records": long}])))
    assert found is not None
    assert found.rows[0].batch == long


def test_more_rows_than_anybody_sends_are_left_to_the_table_and_its_limit() -> None:
    least = sealed(b"r" * 7)
    rows = [{"index": at, "records": least} for at in range(4097)]
    assert read_plain(frame_of(3, asked(rows))) is None
    assert read_by_both(frame_of(3, asked(rows[:-1]))) is not None


@pytest.mark.parametrize(
    "values",
    [
        asked([]),
        asked([{"index": 0, "records": None}]),
        asked([{"index": 0, "records": b""}]),
        asked([{"index": 0, "records": sound + sound}]),
        asked([{"index": 0, "records": sound}, {"index": 1, "records": sound + sound}]),
        asked([{"index": 0, "records": sound}, {"index": 1, "records": None}]),
        {**asked([{"index": 0, "records": sound}]), "transactional_id": "t"},
        {**asked([]), "topic_data": []},
        {**asked([]), "topic_data": asked([ONE])["topic_data"] + asked([])["topic_data"]},
    ],
)
@every_version
def test_what_is_not_plain_is_left_to_the_table(version: int, values: dict[str, Any]) -> None:
    assert read_by_both(frame_of(version, values)) is None


@pytest.mark.parametrize(
    "batch",
    [
        sealed(b"r" * 100, attributes=0x10),
        sealed(b"r" * 100, attributes=0x20),
        sealed(b"r" * 100, attributes=5),
        sealed(b"r" * 100, count=0),
        sealed(b"r" * 100, count=15),
        sealed(b"r" * 100, count=3, delta=3),
        sealed(b"r" * 100, attributes=1, count=100 * 150 + 1),
        sealed(b"r" * 10_000, attributes=1, count=1_000_001),
        sealed(b"r" * 100, producer=(1, -1, 0)),
        sealed(b"r" * 100, producer=(1, 0, -1)),
        sealed(b"r" * 100, magic=1),
        sealed(b"r" * 100, longer=1),
        sealed(b"r" * 100, longer=-1),
        sound[:-1] + b"x",
    ],
)
def test_a_batch_that_may_not_be_stored_is_never_plain(batch: bytes) -> None:
    assert read_by_both(frame_of(9, asked([{"index": 0, "records": batch}]))) is None


@pytest.mark.parametrize(
    "batch",
    [
        sealed(b"r" * 100, attributes=4, count=100 * 150),
        sealed(b"r" * 98, count=14),
        sealed(b"r" * 100, producer=(2**63 - 1, 2**15 - 1, 2**31 - 1)),
        sealed(b"r" * 100, attributes=0x08),
    ],
)
def test_a_batch_at_the_edge_of_what_may_be_stored_is_plain(batch: bytes) -> None:
    assert read_by_both(frame_of(3, asked([{"index": 0, "records": batch}]))) is not None


@every_version
def test_a_produce_that_is_cut_off_or_changed_anywhere_is_read_alike(version: int) -> None:
    frame = bytes(frame_of(version, asked([{"index": 3, "records": sound}])))
    for at in range(len(frame)):
        # The rest lies right behind it: whoever reads too far finds what makes it whole.
        assert read_by_both(memoryview(frame)[:at]) is None
        for byte in (0, 1, 2, 0x7F, 0x80, 0xFF):
            read_by_both(frame[:at] + bytes([byte]) + frame[at + 1 :])


@given(st.binary(max_size=100))
def test_noise_is_read_alike(noise: bytes) -> None:
    read_by_both(noise)
    read_by_both(b"\x00\x00\x00\x09" + noise)


@given(st.binary(min_size=16, max_size=400), int64s)
def test_a_batch_is_placed_alike(batch: bytes, base_offset: int) -> None:
    placed = assign_offset(batch, base_offset)
    assert placed == pure(assign_offset, batch_format, batch, base_offset)
    assert placed[20:] == batch[16:]


@given(versions, int32s, names, int32s, int64s, int64s, int64s)
def test_the_answer_to_a_plain_produce_has_the_same_bytes(
    version: int, number: int, name: str, partition: int, base: int, time_ms: int, start: int
) -> None:
    row = PlainRow(name, partition, memoryview(sound), batch_format.check_batch(sound))
    plain = PlainProduce(version, number, -1, [row])
    native = compiled("batches")
    assert native is not None
    written = native.produced(version, number, name, partition, base, time_ms, start)
    assert written is not None or len(name.encode()) > 512
    arguments = plain, base, time_ms, start
    assert produced_frame(*arguments) == pure(produced_frame, plain_module, *arguments)
