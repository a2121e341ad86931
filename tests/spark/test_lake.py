"""Topics in tables: every record once, drift and all, whoever reads the table."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

import headwater
from headwater.core.errors import RequestError
from headwater.spark.jobs import lake
from headwater.spark.jobs.job import Place
from headwater.spark.jobs.lake import LakeOptions, RulesChangedError
from headwater.spark.jobs.lake_replay import replay
from headwater.spark.jobs.lake_rows import Kind
from headwater.spark.tables.delta import DeltaLake
from headwater.spark.tables.table import OtherCheckpointError, Table
from tests.rig.server_process import ServerProcess
from tests.unit.spark.lake_tables import READERS, Row, ordered, rows_by_own_reader

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
]
SLOW = pytest.mark.slow
FIELDS = "user string, amount int, items array<string>"
HUGE = "x" * 1_000_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("lake") / "data") as server:
        yield server


@pytest.fixture
def client(server: ServerProcess) -> Iterator[headwater.Client]:
    with headwater.Client(server.url) as client:
        yield client


def options(server: ServerProcess, root: Path, topic: str, **more: Any) -> LakeOptions:
    kind = more.pop("format", "delta")
    given: dict[str, Any] = {
        "place": Place(url=server.url, topics=(topic,)),
        "table": str(root / kind),
        "format": kind,
        "checkpoint": str(root / f"{kind}-checkpoint"),
        "fields": FIELDS,
        **more,
    }
    return LakeOptions(**given)


def rows_by_spark(spark: SparkSession, table: Table) -> list[Row]:
    """Over the files the table says it has: no connector for the JVM is needed."""
    schema = table.schema()
    assert schema is not None
    reader = spark.read.schema(from_arrow_schema(schema)).option("basePath", table.location.uri)
    names = [f"`{name}`" for name in schema.names]
    rows = reader.parquet(*table.files()).selectExpr(*names)
    return ordered(rows.toArrow().to_pylist())


def chosen(rows: list[Row], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


def write(client: headwater.Client, topic: str, *payloads: Any) -> None:
    client.append(topic, [{"data": payload} for payload in payloads])


@pytest.mark.parametrize("kind", ["delta", "iceberg", pytest.param("parquet", marks=SLOW)])
def test_records_land_and_those_that_do_not_fit_are_told_with_their_bytes(
    spark: SparkSession, server: ServerProcess, client: headwater.Client, tmp_path: Path, kind: str
) -> None:
    topic = f"drift-{kind}"
    write(client, topic, {"user": "a", "amount": 1, "items": ["x"]}, {"user": "b", "extra": [1]})
    write(
        client, topic, {"user": 5}, {"amount": "7"}, {"amount": 2**40}, [1], "text", {"amount": 1.5}
    )
    write(client, topic, {"user": HUGE, "amount": 3}, {}, None)
    lake_options = options(server, tmp_path, topic, format=kind, partition_by=("date",))
    report = lake.run(spark, lake_options)
    assert (report.rows, report.dead_letters, report.gaps, report.lag) == (4, 7, 0, 0)
    tables = lake_options.tables()
    own = rows_by_own_reader(tables[Kind.MAIN])
    expected = [
        (1, "a", 1, ["x"]),
        (2, "b", None, None),
        (9, HUGE, 3, None),
        (10, None, None, None),
    ]
    assert [(seq, user, amount, items or None) for seq, user, amount, items in
            chosen(own, "seq", "user", "amount", "items")] == expected  # fmt: skip
    assert {row["date"] for row in own} == {row["ts"].date() for row in own}
    assert all(isinstance(row["date"], datetime.date) for row in own)
    dead = rows_by_own_reader(tables[Kind.DEAD])
    raw = {row["seq"]: row["raw"] for row in dead}
    assert raw[3] == b'{"user":5}'
    assert raw[8] == b'{"amount":1.5}'
    assert sorted(raw) == [3, 4, 5, 6, 7, 8, 11]
    assert all(row["cause"] for row in dead)

    # New and dropped fields, and nothing that was there comes again.
    write(client, topic, {"user": "c", "note": "new", "amount": 9})
    wider = options(
        server, tmp_path, topic, format=kind, partition_by=("date",),
        fields="user string, amount long, note string",
    )  # fmt: skip
    report = lake.run(spark, wider)
    assert (report.rows, report.dead_letters) == (1, 0)
    own = rows_by_own_reader(tables[Kind.MAIN])
    assert chosen(own, "seq", "amount", "note")[-1] == (12, 9, "new")
    assert len(own) == 5
    for name, read in READERS.items():
        keys = ("seq", "ts", "user", "amount", "note", "date")
        assert chosen(read(tables[Kind.MAIN]), *keys) == chosen(own, *keys), name
    if kind != "iceberg":  # its files keep the narrow type, which only its own reader can widen
        same = ("seq", "ts", "user", "note", "date")
        assert chosen(rows_by_spark(spark, tables[Kind.MAIN]), *same) == chosen(own, *same)

    # What needs the wider column can be replayed where it was widened.
    result = replay(spark, wider)
    is_delta = isinstance(tables[Kind.MAIN], DeltaLake)
    assert (result.replayed, result.left) == ((0, 7) if is_delta else (1, 6))
    again = replay(spark, wider)
    assert (again.replayed, again.left) == (0, result.left)
    assert len(rows_by_own_reader(tables[Kind.MAIN])) == 5 + result.replayed


def test_without_fields_the_payload_is_a_column(
    spark: SparkSession, server: ServerProcess, client: headwater.Client, tmp_path: Path
) -> None:
    write(client, "plain", {"a": [1, None]}, "text")
    client.append("plain", {"data": 3, "tag": "t", "node": "n", "meta": {"k": 1}})
    lake_options = options(server, tmp_path, "plain", fields=None, partition_by=("topic",))
    assert lake.run(spark, lake_options).rows == 3
    rows = rows_by_own_reader(lake_options.tables()[Kind.MAIN])
    assert chosen(rows, "topic", "tag", "node", "meta", "data")[1:] == [
        ("plain", None, None, None, '"text"'),
        ("plain", "t", "n", '{"k":1}', "3"),
    ]


def test_a_variant_column_is_one_that_spark_can_look_into(
    spark: SparkSession, server: ServerProcess, client: headwater.Client, tmp_path: Path
) -> None:
    write(client, "variants", {"a": 1}, {"a": {"b": [2]}})
    lake_options = options(server, tmp_path, "variants", fields=None, payload="variant")
    assert lake.run(spark, lake_options).rows == 2
    files = lake_options.tables()[Kind.MAIN].files()
    rows = spark.read.schema("seq long, data variant").parquet(*files)
    result = rows.selectExpr("to_json(data) text").collect()
    assert sorted(row["text"] for row in result) == ['{"a":1}', '{"a":{"b":[2]}}']
    with pytest.raises(RequestError, match="pyiceberg cannot write VARIANT"):
        lake.run(spark, options(server, tmp_path, "variants", format="iceberg", payload="variant"))


def test_what_retention_took_is_told_in_the_table_of_gaps(
    spark: SparkSession, server: ServerProcess, client: headwater.Client, tmp_path: Path
) -> None:
    client.create("capped", cap_records=3)
    lake_options = options(server, tmp_path, "capped", fields=None)
    write(client, "capped", 1, 2, 3)
    assert lake.run(spark, lake_options).rows == 3
    write(client, "capped", *range(4, 11))
    report = lake.run(spark, lake_options)
    assert (report.rows, report.gaps) == (3, 1)
    gaps = rows_by_own_reader(lake_options.tables()[Kind.GAPS])
    assert chosen(gaps, "topic", "gap_from", "gap_to", "reason") == [("capped", 4, 7, "cap")]
    rows = rows_by_own_reader(lake_options.tables()[Kind.MAIN])
    assert chosen(rows, "seq") == [(1,), (2,), (3,), (8,), (9,), (10,)]


class Crash(RuntimeError):
    """Stands for the death of the driver: nothing after it is done."""


def crashing(table: Table, monkeypatch: pytest.MonkeyPatch, *, after: bool) -> None:
    commit = table.commit

    def die(*given: Any) -> None:
        if after:
            commit(*given)
        raise Crash

    monkeypatch.setattr(table, "commit", die)


@pytest.mark.parametrize(
    ("which", "after"),
    [(Kind.MAIN, True), (Kind.DEAD, True), pytest.param(Kind.MAIN, False, marks=SLOW)],
)
@pytest.mark.parametrize("kind", ["delta", pytest.param("iceberg", marks=SLOW),
                                  pytest.param("parquet", marks=SLOW)])  # fmt: skip
def test_a_batch_whose_driver_died_around_a_commit_lands_once(
    spark: SparkSession,
    server: ServerProcess,
    client: headwater.Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    which: Kind,
    after: bool,
) -> None:
    topic = f"dies-{kind}-{which.value}-{after}"
    write(client, topic, *({"user": f"u{each}", "amount": each} for each in range(50)), "dead")
    lake_options = options(server, tmp_path, topic, format=kind)
    tables = lake_options.tables()
    crashing(tables[which], monkeypatch, after=after)
    with monkeypatch.context() as patched:
        patched.setattr(LakeOptions, "tables", lambda _self: tables)
        with pytest.raises(Crash):
            lake.run(spark, lake_options)
    if which is Kind.DEAD:
        with pytest.raises(RulesChangedError, match="finish it with those once"):
            lake.run(spark, options(server, tmp_path, topic, format=kind, fields="user string"))
    write(client, topic, {"user": "late", "amount": 50})
    report = lake.run(spark, lake_options)
    was_there = which is Kind.MAIN and after
    assert report.batches_found == was_there
    assert (report.orphans > 0) == (not was_there)
    tables = lake_options.tables()
    rows = rows_by_own_reader(tables[Kind.MAIN])
    assert chosen(rows, "amount") == [(each,) for each in range(51)]
    assert len(rows_by_own_reader(tables[Kind.DEAD])) == 1


@SLOW
def test_a_lost_checkpoint_is_refused_and_another_app_may_go_on(
    spark: SparkSession, server: ServerProcess, client: headwater.Client, tmp_path: Path
) -> None:
    write(client, "lost", *range(5))
    lake_options = options(server, tmp_path, "lost", fields=None)
    assert lake.run(spark, lake_options).rows == 5
    write(client, "lost", 5)
    anew = options(server, tmp_path, "lost", fields=None, checkpoint=str(tmp_path / "new"))
    with pytest.raises(OtherCheckpointError, match="with another checkpoint"):
        lake.run(spark, anew)
    table = lake_options.tables()[Kind.MAIN]
    assert len(rows_by_own_reader(table)) == 5
    behind = options(
        server, tmp_path, "lost", fields=None, checkpoint=str(tmp_path / "behind"),
        app_id="after-the-loss", starting_seq="6",
    )  # fmt: skip
    assert lake.run(spark, behind).rows == 1
    assert chosen(rows_by_own_reader(table), "seq") == [(each,) for each in range(1, 7)]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"format": "orc"}, "a table is one of delta, iceberg, parquet"),
        ({"payload": "avro"}, "kept as one of text, binary, variant, none"),
        ({"partition_by": ("nope",)}, "no column 'nope' to partition by"),
        ({"fields": "data string", "payload": "text"}, "names 'data'|a column twice"),
        ({"table": "relative/place"}, "absolute path"),
        ({"place": Place(url="http://127.0.0.1:1")}, "name at least one topic"),
    ],
)
def test_what_cannot_be_a_table_is_refused_before_anything_is_read(
    spark: SparkSession,
    server: ServerProcess,
    client: headwater.Client,
    tmp_path: Path,
    more: dict[str, Any],
    message: str,
) -> None:
    write(client, "refusals", 1)
    with pytest.raises(RequestError, match=message):
        lake.run(spark, options(server, tmp_path, "refusals", **more))
