"""Rows as records: every column type, texts that are not JSON, limits, topics, marks."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_schema

from headwater.core.errors import InvalidRequestError, RecordTooLargeError
from headwater.spark.sink.chunks import Chunker, Mark, SinkChunk, with_mark, without_mark
from headwater.spark.sink.json_columns import json_texts
from headwater.spark.sink.options import SinkOptions, sink_options
from headwater.spark.sink.rows import RowEncoder, TopicRows

URL = {"url": "http://127.0.0.1:1"}
NO = None
UTC = datetime.UTC
NOON = datetime.datetime(2026, 1, 31, 12, 30, 0, 250, tzinfo=UTC)


def options(schema: pa.Schema, **more: str) -> SinkOptions:
    return sink_options({**URL, **more}, from_arrow_schema(schema), overwrite=False)


def encoded(batch: pa.RecordBatch, **more: str) -> list[TopicRows]:
    chosen = options(batch.schema, **more)
    return list(RowEncoder(chosen.columns, chosen.topic, "3").texts(batch))


def records(batch: pa.RecordBatch) -> list[Any]:
    [encoded_rows] = encoded(batch, topic="t")
    return [msgspec.json.decode(text.removesuffix(",")) for text in encoded_rows.texts.to_pylist()]


def batch_of(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


@pytest.mark.parametrize(
    ("column", "texts"),
    [
        (pa.array([True, NO, False]), ["true", NO, "false"]),
        (pa.array([1, NO, -(2**63)]), ["1", NO, "-9223372036854775808"]),
        (pa.array([1.5, NO, float("nan")]), ["1.5", NO, '"NaN"']),
        (pa.array([float("inf"), -float("inf"), 1e300]), ['"Infinity"', '"-Infinity"', "1e+300"]),
        (pa.array(["a", NO, 'q"\n\\']), ['"a"', NO, '"q\\"\\n\\\\"']),
        (pa.array([Decimal("1.50"), NO]), ["1.50", NO]),
        (pa.array([datetime.date(2026, 1, 2), NO]), ['"2026-01-02"', NO]),
        (pa.array([NOON, NO], pa.timestamp("us", "UTC")), ['"2026-01-31T12:30:00.000250Z"', NO]),
        (pa.array([NOON, NO], pa.timestamp("us", "Asia/Tokyo")),
         ['"2026-01-31T12:30:00.000250Z"', NO]),
        (pa.array([NOON.replace(tzinfo=None)], pa.timestamp("us")),
         ['"2026-01-31T12:30:00.000250"']),
        (pa.array([b"\xff", NO, b""]), ['"/w=="', NO, '""']),
        (pa.array([{"a": 1, "b": "x"}, NO, {"a": NO, "b": NO}]), ['{"a":1,"b":"x"}', NO, "{}"]),
        (pa.array([[1, NO], NO, []]), ["[1,null]", NO, "[]"]),
        (pa.array([[["a"], []], NO, [NO]]), ['[["a"],[]]', NO, "[null]"]),
        (pa.array([[("a", 1), ('"', NO)], NO, []], pa.map_(pa.string(), pa.int32())),
         ['{"a":1,"\\"":null}', NO, "{}"]),
        (pa.array([datetime.timedelta(seconds=3), NO]), ['"PT3S"', NO]),
        (pa.nulls(2), [NO, NO]),
    ],
)  # fmt: skip
def test_every_type_of_column_has_its_json(column: Any, texts: list[str | None]) -> None:
    assert json_texts(column).to_pylist() == texts
    assert json_texts(column.slice(1)).to_pylist() == texts[1:]


def test_columns_without_data_become_an_object_without_its_nulls() -> None:
    batch = batch_of(user=["a", NO], amount=[1, 2], tag=["x", NO], node=[NO, "n"])
    assert records(batch) == [
        {"data": {"user": "a", "amount": 1}, "tag": "x"},
        {"data": {"amount": 2}, "node": "n"},
    ]


def test_data_comes_as_text_as_bytes_or_as_a_column_of_its_own_type() -> None:
    for data in (['{"a": 1}', " null "], [b'{"a": 1}', b"\tnull"]):
        assert records(batch_of(data=data)) == [{"data": {"a": 1}}, {"data": None}]
    assert records(batch_of(data=[[1], NO])) == [{"data": [1]}, {"data": None}]
    assert records(batch_of(data=[2.5])) == [{"data": 2.5}]


def test_a_variant_is_written_as_the_json_it_stands_for() -> None:
    """A struct of two byte strings, one of them with a word in its metadata."""
    parts = pa.struct(
        [
            pa.field("value", pa.binary(), nullable=False),
            pa.field("metadata", pa.binary(), nullable=False, metadata={"variant": "true"}),
        ]
    )
    number = {"value": b"\x0c\x07", "metadata": b"\x01\x00\x00"}
    batch = pa.RecordBatch.from_arrays([pa.array([number, NO], parts)], ["data"])
    chosen = sink_options(
        {**URL, "topic": "t"}, from_arrow_schema(pa.schema([("data", pa.int8())])), overwrite=False
    )
    [encoded_rows] = RowEncoder(chosen.columns, "t", "0").texts(batch)
    assert encoded_rows.texts.to_pylist() == ['{"data":7},', '{"data":null},']


def test_columns_the_server_gives_anew_and_rows_for_gaps_are_left_out() -> None:
    batch = batch_of(topic=["s", "s"], seq=[7, 8], ts=[NOON, NOON], data=["1", NO], gap=[NO, "x"])
    assert records(batch) == [{"data": 1}]


def test_rows_go_to_the_topics_they_name() -> None:
    batch = batch_of(topic=["a", "b", "a"], data=["1", "2", "3"])
    encoded_rows = {rows.topic: rows.texts.to_pylist() for rows in encoded(batch)}
    assert encoded_rows == {"a": ['{"data":1},', '{"data":3},'], "b": ['{"data":2},']}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"data": ["1", "nope"]}, r"row 1 of partition 3: data is not JSON"),
        ({"data": ["1", "2},{"]}, r"row 1 of partition 3: data is not JSON"),
        ({"data": ["[1", "2]", "3, 4"]}, r"row 0 of partition 3: data is not JSON"),
        ({"data": ["1", ""]}, r"row 1 of partition 3: data is not JSON"),
        ({"data": [b'"\xff"']}, r"row 0 of partition 3: data is not JSON"),
        ({"data": ["1"], "meta": ["[]"]}, r"row 0 of partition 3: meta is not a JSON object"),
        ({"data": ["1"], "meta": ['{"a":1}, "x": {}']}, r"meta is not a JSON object"),
        ({"data": ["1", "1"], "topic": ["t", NO]}, r"row 1 of partition 3: the column topic is"),
        ({"data": ["1"], "topic": ["no such name!"]}, r"topic must be 1 to 255 letters"),
        ({"data": ["1"], "topic": ["kafka:orders:0"]}, r"kafka:orders:0 is a partition of a Kafka"),
    ],
)
def test_a_row_that_is_no_record_is_named_and_refused(columns: Any, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        encoded(batch_of(**columns), **({} if "topic" in columns else {"topic": "t"}))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"data": ["1", f'"{"x" * 1_048_576}"']}, "row 1 .* data and meta has 1048578"),
        ({"data": ["1"], "tag": ["x" * 257]}, "tag has 257 bytes, a record takes at most 256"),
        ({"data": ["1"], "node": ["é" * 65]}, "node has 130 bytes"),
        ({"data": ["1"], "meta": ['{"a":"%s"}' % ("x" * 16_400)]}, "meta has 16408 bytes"),
    ],
)  # fmt: skip
def test_what_is_over_a_limit_is_named_and_refused(columns: Any, message: str) -> None:
    with pytest.raises(RecordTooLargeError, match=message):
        encoded(batch_of(**columns), topic="t")


def test_a_mark_of_another_sink_is_taken_out_of_the_meta() -> None:
    batch = batch_of(data=["1", "2"], meta=['{"$sink":"a/0/0/0/1/0"}', '{"k":1,"$sink":"x"}'])
    assert records(batch) == [{"data": 1}, {"data": 2, "meta": {"k": 1}}]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"topic": "t", "path": "/data"}, "a data directory has one owner.* option"),
        ({"topic": "t", "url": ""}, "say which server"),
        ({}, "name the topic"),
        ({"topic": "../t"}, "topic must be"),
        ({"topic": "kafka:orders:0"}, "Write to a log topic, which Kafka clients read as well"),
        ({"topic": "t", "durability": "strong"}, "durability is one of ephemeral, memory"),
        ({"topic": "t", "batchRecords": "10001"}, "batchRecords is a whole number from 1 to 10000"),
        ({"topic": "t", "batchBytes": "x"}, "batchBytes is a whole number"),
        ({"topic": "t", "writeId": "a/b"}, "writeId is a text of 1 to 160 bytes without"),
        ({"topic": "t", "appId": "*"}, "appId is a text"),
        ({"topic": "t", "writeIdd": "x"}, "no option 'writeIdd' for writing; options are url, "),
        ({"topic": "t", "rerun": "maybe"}, "rerun is compare or trust"),
    ],
)
def test_an_option_that_cannot_be_is_refused_by_name(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        options(pa.schema([("data", pa.string())]), **given)


def test_columns_without_a_place_in_a_record_are_refused_beside_data() -> None:
    schema = pa.schema([("data", pa.string()), ("user", pa.string())])
    with pytest.raises(InvalidRequestError, match="no place for: user; drop them"):
        options(schema, topic="t")


def test_overwriting_a_topic_is_refused() -> None:
    schema = from_arrow_schema(pa.schema([("data", pa.string())]))
    with pytest.raises(InvalidRequestError, match="can only be appended to"):
        sink_options({**URL, "topic": "t"}, schema, overwrite=True)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.binary(min_size=1, max_size=40), max_size=60),
    portions=st.lists(st.integers(1, 20), min_size=1),
    records_most=st.integers(1, 12),
    bytes_most=st.integers(1, 120),
)
def test_chunks_depend_on_the_rows_alone(
    rows: list[bytes], portions: list[int], records_most: int, bytes_most: int
) -> None:
    texts = pa.array([row.hex() for row in rows], pa.string())

    def cut(portions: list[int]) -> list[list[str]]:
        chunker, chunks, at, turn = Chunker(records_most, bytes_most), list[SinkChunk](), 0, 0
        while at < len(texts):
            count = portions[turn % len(portions)]
            chunks += chunker.add(texts.slice(at, count))
            at, turn = at + count, turn + 1
        chunks += chunker.rest()
        assert [chunk.number for chunk in chunks] == list(range(len(chunks)))
        return [[text for part in chunk.parts for text in part.to_pylist()] for chunk in chunks]

    encoded_rows = cut(portions)
    assert encoded_rows == cut([len(texts) or 1])
    assert [text for chunk in encoded_rows for text in chunk] == texts.to_pylist()
    for chunk in encoded_rows:
        assert 1 <= len(chunk) <= records_most
        assert len(chunk) == 1 or sum(map(len, chunk)) <= bytes_most


@settings(max_examples=60, deadline=None)
@given(
    writer=st.text(
        st.characters(exclude_characters='/*"\\', exclude_categories=["C"]), max_size=20
    ),
    meta=st.none() | st.dictionaries(st.text(max_size=5), st.text(max_size=5), min_size=1),
)
def test_a_mark_can_be_put_in_read_and_taken_out_again(
    writer: str, meta: dict[str, str] | None
) -> None:
    mark = Mark("t", writer, 3, "7", 11, 10_000, 2**64 - 1)
    inner = "" if meta is None else f'"meta":{msgspec.json.encode(meta).decode()},'
    row = with_mark(f'{{{inner}"data":1}},'.encode(), mark.text())
    encoded_rows = msgspec.json.decode(row[:-1], type=dict[str, msgspec.Raw])
    text = msgspec.json.decode(encoded_rows["meta"], type=dict[str, str])["$sink"]
    assert Mark.read(text) == mark
    left = without_mark(bytes(encoded_rows["meta"]))
    assert (None if left is None else msgspec.json.decode(left)) == (meta or None)


def test_a_text_that_is_no_mark_is_not_taken_for_one() -> None:
    for text in ("", "a/b", "t/w/0/0/x/1/0", "t/w/0/0/1/1/zz", "w/0/0/1/1/0"):
        assert Mark.read(text) is None
