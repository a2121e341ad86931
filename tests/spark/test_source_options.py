"""Options of the source: every one is read, and what cannot be is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater.core.errors import RequestError
from headwater.spark.source.data_source import HeadwaterDataSource
from headwater.spark.source.options import Invalid, Payload, Start, source_options
from headwater.spark.source.schema import chosen_columns, full_columns, parse_ddl
from headwater.spark.source.stream_reader import TopicCursor, decode_offset, encode_offset, share

HERE = {"path": "/data", "topic": "orders"}


def given(**options: Any) -> Any:
    return source_options({**HERE, **{key.lower(): str(value) for key, value in options.items()}})


def test_every_option_is_read_whatever_its_case() -> None:
    options = source_options(
        {
            "url": "http://127.0.0.1:4000",
            "TOKEN": "secret",
            "topics": "b, a,b",
            "startingseq": "5",
            "endingSeq": "9",
            "MAXRECORDSPERTRIGGER": "100",
            "failondataloss": "False",
            "verify": "false",
            "fields": "a long",
            "fieldscolumn": "payload",
            "invalid": "column",
            "payload": "BINARY",
            "rowsperpartition": "7",
            "bytesperpartition": "1000",
        }
    )
    assert (options.url, options.token, options.topics) == (
        "http://127.0.0.1:4000",
        "secret",
        ("a", "b"),
    )
    assert (options.start_of("a"), options.end_of("a")) == (Start(5), 9)
    assert options.records_per_trigger_max == 100
    assert (options.fail_on_data_loss, options.verify) == (False, False)
    assert (options.fields, options.fields_column, options.invalid) == (
        "a long",
        "payload",
        Invalid.COLUMN,
    )
    assert (options.payload, options.partition_rows_max) == (Payload.BINARY, 7)
    assert options.partition_bytes_max == 1_000
    assert "secret" not in repr(options)


def test_a_relative_place_is_one_of_the_planner_not_of_an_executor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    planned = given(path="data", cold="../tier")
    assert planned.path == str(tmp_path / "data")
    assert planned.cold == str(tmp_path.parent / "tier")
    assert given(cold="s3://bucket/tier").cold == "s3://bucket/tier"


def test_a_place_to_begin_can_be_given_for_each_topic() -> None:
    bounds = {"startingSeq": '{"orders": 12, "clicks": "latest"}', "endingSeq": '{"orders": 20}'}
    options = source_options({"path": "/data", "topics": "orders,clicks,others", **bounds})
    assert options.start_of("orders") == Start(12)
    assert options.start_of("clicks") == Start(latest=True)
    assert options.start_of("others") == Start()
    assert (options.end_of("orders"), options.end_of("clicks")) == (20, None)


@pytest.mark.parametrize("option", ["startingSeq", "endingSeq"])
@pytest.mark.parametrize("topics", [{"topics": "orders,clicks"}, {"topicPattern": "order.*"}])
def test_a_place_in_a_topic_that_is_not_read_is_refused(
    option: str, topics: dict[str, str]
) -> None:
    wanted = {"path": "/data", **topics, option: '{"orders": 12, "ordres": 7}'}
    with pytest.raises(RequestError, match=f"option {option} names 'ordres'") as caught:
        source_options(wanted)
    assert caught.value.detail == {"option": option}


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("1700000000123", 1_700_000_000_123_000),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000_000),
        ("2023-11-14T22:13:20.000001", 1_700_000_000_000_001),
        ("2023-11-15 00:13:20+02:00", 1_700_000_000_000_000),
    ],
)
def test_times_are_milliseconds_or_as_people_write_them(text: str, microseconds: int) -> None:
    assert given(startingTimestamp=text).starting_us == microseconds


def test_topics_are_wanted_by_name_or_by_pattern() -> None:
    assert given().wants("orders")
    assert not given().wants("orders2")
    options = source_options({"path": "/data", "topicpattern": r"order.*"})
    assert options.wants("orders")
    assert not options.wants("reorders")


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("startingSeq", "0", "from 1"),
        ("startingSeq", "soon", "whole number"),
        ("startingSeq", '{"orders": [1]}', "one for each topic"),
        ("endingSeq", "-1", "from 0"),
        ("startingTimestamp", "yesterday", "2026-01-31"),
        ("maxRecordsPerTrigger", "0", "from 1"),
        ("failOnDataLoss", "maybe", "true or false"),
        ("verify", "1", "true or false"),
        ("payload", "avro", "string, binary, variant"),
        ("invalid", "drop", "fail, null, column"),
        ("rowsPerPartition", "x", "whole number"),
        ("fields", " ", "not empty"),
        ("topic", "no/pe", "letters, digits"),
    ],
)
def test_a_bad_value_is_refused_with_the_name_of_its_option(
    option: str, value: str, text: str
) -> None:
    with pytest.raises(RequestError) as caught:
        given(**{option: value})
    assert option in str(caught.value)
    assert text in str(caught.value)
    assert caught.value.detail == {"option": option}


def test_an_unknown_option_is_refused_and_the_likely_one_named() -> None:
    with pytest.raises(RequestError, match="no option 'startingseqs'; did you mean startingSeq"):
        given(startingSeqs=1)
    with pytest.raises(RequestError, match=r"no option 'kafka\.bootstrap'"):
        source_options({**HERE, "kafka.bootstrap": "x"})


def test_what_spark_adds_by_itself_is_let_pass() -> None:
    source_options({**HERE, "checkpointLocation": "x", "spark.sql.x": "y", "__internal": "z"})


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"topic": "a"}, "neither was given"),
        ({"path": "/d", "url": "http://h", "topic": "a"}, "both were given"),
        ({"path": "/d"}, "none of them"),
        ({"path": "/d", "topic": "a", "topics": "b"}, "topic and topics"),
        ({"path": "/d", "topic": "a", "token": "t"}, "token goes with url"),
        ({"url": "http://h", "topic": "a", "cold": "/c"}, "cold goes with path"),
        ({"path": "/d", "topic": "a", "fieldscolumn": "p"}, "fieldsColumn goes with fields"),
        (
            {"path": "/d", "topic": "a", "startingseq": "1", "startingtimestamp": "1"},
            "both say where to begin",
        ),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(RequestError, match=text):
        source_options(options)


# -- fields and columns


def test_fields_are_written_as_spark_writes_types() -> None:
    text = (
        "user string, `a b` bigint, ok: BOOLEAN, at timestamp, day date, price double, f float,"
        "t tinyint, s smallint, i int, tags array<string>, "
        "place struct<lat: double, lon: double>, more map<string, array<struct<n: long>>>"
    )
    options = parse_ddl(text)
    assert options.simpleString() == (
        "struct<user:string,a b:bigint,ok:boolean,at:timestamp,day:date,price:double,f:float,"
        "t:tinyint,s:smallint,i:int,tags:array<string>,place:struct<lat:double,lon:double>,"
        "more:map<string,array<struct<n:bigint>>>>"
    )
    assert all(field.nullable for field in options.fields)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("user", "a type is expected at the end"),
        ("user strin", "no type 'strin'"),
        ("user string amount long", "a comma or the end is expected before 'amount long'"),
        ("user string,", "a name is expected at the end"),
        ("tags array<string", "'>' is expected"),
        ("m map<long, string>", "the only key JSON has"),
        ("a long, A string", "names 'A' twice"),
        ("a long not null", "cannot be NOT NULL"),
        ("a decimal(10,2)", "no type 'decimal'"),
    ],
)
def test_fields_that_cannot_be_read_are_refused_where_they_go_wrong(text: str, reason: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_ddl(text)
    assert reason in str(caught.value)


def test_the_schema_is_the_envelope_and_the_fields() -> None:
    source = HeadwaterDataSource({**HERE, "fields": "user string", "invalid": "column"})
    assert source.schema().simpleString() == (
        "struct<topic:string,seq:bigint,ts:timestamp,node:string,tag:string,data:string,"
        "meta:string,gap:struct<gap_from:bigint,gap_to:bigint,reason:string,"
        "missed_estimate:bigint>,user:string,invalid:string>"
    )
    assert [field.name for field in source.schema().fields if not field.nullable] == [
        "topic",
        "seq",
    ]


def test_a_field_named_like_a_column_needs_a_column_of_their_own() -> None:
    with pytest.raises(RequestError, match="fieldsColumn"):
        full_columns(given(fields="ts long"))
    options = full_columns(given(fields="ts long", fieldsColumn="payload"))
    assert options.schema["payload"].dataType.simpleString() == "struct<ts:bigint>"
    with pytest.raises(RequestError, match="'tag'"):
        full_columns(given(fields="a long", fieldsColumn="tag"))
    assert "invalid" in full_columns(given(fields="invalid long"))
    with pytest.raises(RequestError, match="'invalid'"):
        full_columns(given(fields="invalid long", invalid="column"))


def test_a_smaller_schema_chooses_columns_and_names_fields() -> None:
    options = chosen_columns(given(), parse_ddl("seq long, data string, amount long"))
    assert options.fields.fieldNames() == ["amount"]
    assert options.schema.fieldNames() == ["seq", "data", "amount"]
    with pytest.raises(RequestError, match="'ts' is timestamp, not bigint"):
        chosen_columns(given(), parse_ddl("ts long"))
    with pytest.raises(RequestError, match="string, binary or variant"):
        chosen_columns(given(), parse_ddl("data long"))


# -- offsets


def test_offsets_have_their_keys_in_one_order_and_come_back_as_they_were() -> None:
    offset = encode_offset({"b": TopicCursor(1, 5), "a": TopicCursor(2, 0)})
    assert str(offset) == (
        "{'topics': {'a': {'epoch': 2, 'seq': 0}, 'b': {'epoch': 1, 'seq': 5}}, 'version': 1}"
    )
    assert decode_offset(offset) == {"a": TopicCursor(2, 0), "b": TopicCursor(1, 5)}


@pytest.mark.parametrize(
    "offset", [{}, {"version": 1}, {"version": 1, "topics": {"a": 5}}, [1], None, {"orders": 5}]
)
def test_an_offset_of_another_source_is_refused(offset: Any) -> None:
    with pytest.raises(RequestError, match="none of this source"):
        decode_offset(offset)


def test_an_offset_of_a_newer_version_is_refused() -> None:
    with pytest.raises(RequestError, match="newer Headwater"):
        decode_offset({"version": 2, "topics": {}})


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 10, 99, 100, 101, 1_000])
def test_a_batch_is_shared_out_by_lag_and_never_overdrawn(limit: int) -> None:
    lags = {"a": 90, "b": 9, "c": 1, "d": 0}
    shares = share(lags, limit)
    assert sum(shares.values()) == min(limit, 100)
    assert all(0 <= shares[name] <= lags[name] for name in lags)
    if limit >= 3:
        assert all(shares[name] for name in "abc"), "nobody who waits is left out"
