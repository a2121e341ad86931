"""Payload fields: typed columns out of JSON, a batch at a time, and what becomes of the misfits."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

import headwater
from headwater.core.errors import InvalidPayloadError
from headwater.spark.source.data_source import HeadwaterDataSource
from headwater.spark.source.fields import FieldParser
from headwater.spark.source.schema import full_columns, parse_ddl
from tests.spark.direct_reader import read

UTC = datetime.UTC


def parsed(ddl: str, *payloads: Any) -> tuple[list[dict[str, Any]], dict[int, str]]:
    fields = parse_ddl(ddl)
    parser = FieldParser(fields)
    raw = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in payloads]
    # A slice of a longer column, as batches sometimes are.
    read = parser.parse(pyarrow.array([b"{}", *raw, b"{}"], pyarrow.binary())[1:-1])
    schema = to_arrow_schema(fields, timezone="UTC")
    columns = parser.columns(read.values, [field.type for field in schema])
    batch = pyarrow.RecordBatch.from_arrays(columns, schema=schema)
    batch.validate(full=True)
    return batch.to_pylist(), read.reasons


def test_every_type_comes_out_of_json_and_what_is_absent_is_null() -> None:
    ddl = (
        "s string, b boolean, l long, i int, d double, day date, at timestamp, "
        "tags array<string>, nested array<struct<x: int, y: array<long>>>, "
        "m map<string, double>, deep map<string, struct<z: long>>, place struct<lat: double>"
    )
    rows, reasons = parsed(
        ddl,
        {
            "s": "é", "b": True, "l": 2**62, "i": -5, "d": 1, "day": "2024-02-29",
            "at": "2024-02-29T01:02:03.5+01:00", "tags": ["a", None], "m": {"k": 1.5},
            "nested": [{"x": 1, "y": [1, 2]}, None, {}], "deep": {"k": {"z": 1}, "n": None},
            "place": {"lat": 1.5, "lon": 2}, "unasked": {"for": [1]},
        },
        {},
        {"at": "2024-02-29T01:02:03", "tags": None, "place": None},
    )  # fmt: skip
    assert reasons == {}
    first, second, third = rows
    assert first["l"] == 2**62
    assert (first["s"], first["b"], first["i"], first["d"]) == ("é", True, -5, 1.0)
    assert first["day"] == datetime.date(2024, 2, 29)
    assert first["at"] == datetime.datetime(2024, 2, 29, 0, 2, 3, 500_000, UTC)
    assert first["tags"] == ["a", None]
    assert first["nested"] == [{"x": 1, "y": [1, 2]}, None, {"x": None, "y": None}]
    assert dict(first["m"]) == {"k": 1.5}
    assert dict(first["deep"]) == {"k": {"z": 1}, "n": None}
    assert first["place"] == {"lat": 1.5}
    assert set(second.values()) == {None}
    assert third["at"] == datetime.datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC)


@pytest.mark.parametrize(
    ("ddl", "payload", "text"),
    [
        ("a long", {"a": "1"}, "Expected `int | null`, got `str`"),
        ("a long", {"a": 1.5}, "got `float`"),
        ("a long", b'{"a": 9223372036854775808}', "<= 9223372036854775807"),
        ("a int", {"a": 2**31}, "<= 2147483647"),
        ("a tinyint", {"a": 128}, "<= 127"),
        ("a string", {"a": 1}, "got `int`"),
        ("a boolean", {"a": 1}, "got `int`"),
        ("a timestamp", {"a": "soon"}, "RFC3339"),
        ("a array<long>", {"a": [1, "2"]}, "$.a[1]"),
        ("a struct<b: long>", {"a": {"b": "x"}}, "$.a.b"),
        ("a long", [1], "Expected `object`"),
        ("a long", b'{"a": 1', "truncated"),
        ("a long", b"", "truncated"),
        ("a string", b'{"a": "\xff"}', "utf-8"),
        ("a long", b'{"a": 1} {"a": 2}', "malformed"),
        ("a string", b'{"a": "x\ny"}', "malformed"),
    ],
)
def test_a_payload_that_does_not_fit_is_told_and_the_others_are_read(
    ddl: str, payload: Any, text: str
) -> None:
    rows, reasons = parsed(ddl, {}, payload, {})
    assert list(reasons) == [1]
    assert text in reasons[1]
    assert [row["a"] for row in rows] == [None, None, None]


splits = st.sampled_from(
    [
        b'{"a":1}', b'{"a":2}', b' {"a":3}', b'{"a":4}{"a":5}', b'{"a":6},{"a":7}', b"", b" ",
        b'{"a":8', b'"b":9}', b'{"a":{}', b"}", b"{", b'{"a":10,', b"[", b"]", b'[{"a":1}',
        b'{"b":"}', b'{"}', b'"a":11}', b"{}", b"null", b"1", b'{"b":[{}]}', b'{"a":12}\n{"a":13}',
    ]
)  # fmt: skip


@given(st.lists(splits, min_size=1, max_size=8))
def test_parsing_all_at_once_is_parsing_each_alone(payloads: list[bytes]) -> None:
    together, reasons = parsed("a long", *payloads)
    alone = [parsed("a long", payload) for payload in payloads]
    assert together == [rows[0] for rows, _ in alone]
    assert set(reasons) == {position for position, (_, why) in enumerate(alone) if why}


# -- in rows


def written(path: Path, *payloads: Any) -> Path:
    with headwater.open(path / "data") as db:
        db.append("orders", [{"data": payload} for payload in payloads])
    return path / "data"


def test_fields_stand_beside_the_envelope_or_in_a_column_of_their_own(tmp_path: Path) -> None:
    path = written(tmp_path, {"user": "u", "seq": 7}, {})
    flat = read(path, topic="orders", fields="user string")
    assert [(row["seq"], row["user"]) for row in flat] == [(1, "u"), (2, None)]
    inside = read(path, topic="orders", fields="user string, seq long", fieldsColumn="payload")
    assert [row["payload"] for row in inside] == [
        {"user": "u", "seq": 7},
        {"user": None, "seq": None},
    ]
    smaller = read(path, parse_ddl("user string"), topic="orders")
    assert smaller == [{"user": "u"}, {"user": None}]


def test_a_misfit_fails_the_query_unless_told_otherwise(tmp_path: Path) -> None:
    path = written(tmp_path, {"n": 1}, {"n": "two"}, [3])
    options: dict[str, Any] = {"topic": "orders", "fields": "n long"}
    with pytest.raises(InvalidPayloadError, match=r"seq 2 of topic 'orders'.*got `str`"):
        read(path, **options)
    assert [row["n"] for row in read(path, **options, invalid="null")] == [1, None, None]
    rows = read(path, **options, invalid="column")
    assert [row["n"] for row in rows] == [1, None, None]
    assert rows[0]["invalid"] is None
    assert "got `str`" in rows[1]["invalid"]
    assert "got `array`" in rows[2]["invalid"]
    assert [row["data"] for row in rows] == ['{"n":1}', '{"n":"two"}', "[3]"]


def test_whether_fields_fit_can_be_asked_without_them(tmp_path: Path) -> None:
    path = written(tmp_path, {"n": 1}, {"n": "two"})
    schema = parse_ddl("seq long, invalid string")
    rows = read(path, schema, topic="orders", fields="n long", invalid="column")
    assert [row["invalid"] is None for row in rows] == [True, False]


def test_payloads_come_as_text_as_bytes_or_as_variants(tmp_path: Path) -> None:
    path = written(tmp_path, {"a": [1, "é"]}, None)
    assert [row["data"] for row in read(path, topic="orders")] == ['{"a":[1,"é"]}', "null"]
    raw = read(path, topic="orders", payload="binary")
    assert [row["data"] for row in raw] == ['{"a":[1,"é"]}'.encode(), b"null"]
    variants = read(path, topic="orders", payload="variant")
    assert set(variants[0]["data"]) == {"value", "metadata"}


def test_batches_have_the_schema_that_spark_compares_with(tmp_path: Path) -> None:
    options = {
        "path": str(tmp_path), "topic": "a", "fields": "u string, n array<struct<x: long>>",
        "invalid": "column",
    }  # fmt: skip
    source = HeadwaterDataSource(options)
    from headwater.spark.source.options import source_options

    columns = full_columns(source_options(options))
    assert columns.arrow().equals(to_arrow_schema(source.schema(), timezone="UTC"))
