"""Rows of files and tables become records: once, as they stand there, or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from headwater.client import Client
from headwater.core.errors import RequestError
from headwater.spark.jobs.backfill import BackfillOptions, BackfillReport, for_the_sink, run
from headwater.spark.jobs.job import Place
from headwater.spark.jobs.origins import CARRIED, Origin
from headwater.spark.sessions.spark_errors import explained
from tests.rig.server_process import ServerProcess

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("backfill") / "data") as server:
        yield server


class Bench:
    """One topic, and backfills into it."""

    def __init__(self, spark: SparkSession, server: ServerProcess, topic: str) -> None:
        self.spark, self.url, self.topic = spark, server.url, topic

    def fill(self, origin: Origin, **more: Any) -> BackfillReport:
        place = Place(url=self.url, topics=(self.topic,))
        with explained():
            return run(self.spark, BackfillOptions(place=place, origin=origin, **more))

    def records(self) -> list[Any]:
        with Client(self.url) as client:
            if not any(state.topic == self.topic for state in client.topics()):
                return []
            return list(client.diff(self.topic, limit=1_000).records)

    def data(self) -> list[Any]:
        return [record.data for record in self.records()]


@pytest.fixture
def bench(spark: SparkSession, server: ServerProcess, request: pytest.FixtureRequest) -> Bench:
    return Bench(spark, server, f"t{abs(hash(request.node.name)):x}")


def lines(path: Path, *texts: str) -> Path:
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


def test_a_line_of_json_is_a_record_as_it_stands(bench: Bench, tmp_path: Path) -> None:
    odd = ['{"b":1,  "a":1.50,"kind":"x"}', '["é", 1e3]', "  7 ", "", '"text"', "null"]
    path = lines(tmp_path / "a.jsonl", *odd)
    report = bench.fill(Origin(format="json", location=str(path), tag="kind"))
    assert (report.ok, report.records, report.files, report.unfit) == (True, 5, 1, 0)
    records = bench.records()
    assert [record.data for record in records] == [json.loads(text) for text in odd if text]
    assert [record.tag for record in records] == ["x", None, None, None, None]


def test_the_same_backfill_again_writes_nothing_twice(bench: Bench, tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", '{"n":1}', '{"n":2}')
    origin = Origin(format="json", location=str(path))
    first = bench.fill(origin)
    again = bench.fill(origin)
    assert again.write_id == first.write_id
    assert bench.data() == [{"n": 1}, {"n": 2}]
    lines(path, '{"n":1}', '{"n":3}')
    more = bench.fill(origin)
    assert more.write_id != first.write_id, "other rows are another write, even as many"
    assert bench.data() == [{"n": 1}, {"n": 2}, {"n": 1}, {"n": 3}]


def test_one_line_that_is_no_json_and_nothing_is_written(bench: Bench, tmp_path: Path) -> None:
    lines(tmp_path / "a.jsonl", '{"n":1}')
    bad = lines(tmp_path / "b.jsonl", '{"n":2}', '{"n":', '{"n":3}', "also bad")
    report = bench.fill(Origin(format="json", location=str(tmp_path / "*.jsonl")))
    assert (report.ok, report.records, report.unfit, report.files) == (False, 0, 2, 2)
    (row,) = report.unfit_rows
    assert row.file.endswith(bad.name)
    assert row.text == '{"n":'
    assert row.why.startswith("not JSON: ")
    assert bench.data() == []


def test_two_broken_lines_that_fit_together_are_both_seen(bench: Bench, tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", '{"a":[1', "2]},3")
    report = bench.fill(Origin(format="json", location=str(path)))
    assert report.unfit == 2
    assert bench.data() == []


def test_a_tag_that_is_too_long_is_told_before_writing(bench: Bench, tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", json.dumps({"kind": "k" * 300}))
    report = bench.fill(Origin(format="json", location=str(path), tag="kind"))
    assert [row.why for row in report.unfit_rows] == ["tag has over 256 bytes"]
    assert bench.data() == []


def test_cells_of_a_csv_file_are_texts_unless_types_are_given(bench: Bench, tmp_path: Path) -> None:
    path = lines(tmp_path / "a.csv", "code,amount", "01234,7", "00001,8")
    bench.fill(Origin(format="csv", location=str(path), tag="code"))
    assert bench.data() == [{"code": "01234", "amount": "7"}, {"code": "00001", "amount": "8"}]
    assert [record.tag for record in bench.records()] == ["01234", "00001"]
    bench.fill(Origin(format="csv", location=str(path), fields="code string, amount long"))
    assert bench.data()[2:] == [{"code": "01234", "amount": 7}, {"code": "00001", "amount": 8}]


def test_a_csv_row_that_does_not_fit_stops_all(bench: Bench, tmp_path: Path) -> None:
    path = lines(tmp_path / "a.csv", "code,amount", "a,7", "b,many", "c,9")
    origin = Origin(format="csv", location=str(path), fields="code string, amount long")
    report = bench.fill(origin)
    assert (report.ok, report.unfit) == (False, 1)
    assert report.unfit_rows[0].why == "does not fit: b,many"
    assert bench.data() == []


def test_parquet_columns_become_an_object_or_one_is_the_payload(
    bench: Bench, tmp_path: Path
) -> None:
    rows = [(1, '{"deep":[1]}', "x", {"k": 1}), (2, "[2]", "y", None)]
    frame = bench.spark.createDataFrame(
        rows, "id long, body string, kind string, m map<string,int>"
    )
    place = str(tmp_path / "table")
    frame.coalesce(1).write.parquet(place)
    bench.fill(Origin(format="parquet", location=place, data="body", tag="kind", node="kind"))
    records = [(record.data, record.tag, record.node) for record in bench.records()]
    assert records == [({"deep": [1]}, "x", "x"), ([2], "y", "y")]
    bench.fill(Origin(format="parquet", location=place))
    assert bench.data()[2:] == [
        {"id": 1, "body": '{"deep":[1]}', "kind": "x", "m": {"k": 1}},
        {"id": 2, "body": "[2]", "kind": "y"},
    ]


def test_a_delta_table_is_read_at_its_newest_version(bench: Bench, tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    table = pa.table({"day": ["a", "a", "b"], "n": [1, 2, 3]})
    write_deltalake(place, table, partition_by=["day"])
    DeltaTable(place).delete("n = 2")
    write_deltalake(place, pa.table({"day": ["c"], "n": [4]}), mode="append")
    bench.fill(Origin(format="delta", location=place), order_by=("n",))
    assert bench.data() == [{"day": "a", "n": 1}, {"day": "b", "n": 3}, {"day": "c", "n": 4}]


def test_rows_in_order_keep_their_order_over_files_and_splits(bench: Bench, tmp_path: Path) -> None:
    for name in ("b", "a"):
        numbers = range(100 if name == "b" else 0, 200 if name == "b" else 100)
        lines(tmp_path / f"{name}.jsonl", *(f'{{"n":{number}}}' for number in numbers))
    setting = "spark.sql.files.maxPartitionBytes"
    bench.spark.conf.set(setting, "400b")
    try:
        bench.fill(Origin(format="json", location=str(tmp_path)), in_order=True)
    finally:
        bench.spark.conf.unset(setting)
    assert [data["n"] for data in bench.data()] == list(range(200))


@pytest.mark.parametrize(
    ("flags", "writers"), [({}, 4), ({"in_order": True}, 1), ({"order_by": ("id",)}, 1)]
)
def test_rows_in_order_have_one_writer(
    spark: SparkSession, flags: dict[str, Any], writers: int
) -> None:
    origin = Origin(format="parquet", location="anywhere")
    options = BackfillOptions(place=Place(url="http://x"), origin=origin, **flags)
    carried = [f"0 as `{name}`" for name in CARRIED]
    rows = spark.range(0, 100, 1, 4).selectExpr("id", *carried)
    records = for_the_sink(rows, options)
    assert records.columns == ["id"]
    assert records.rdd.getNumPartitions() == writers


@pytest.mark.parametrize(
    ("origin", "message"),
    [
        (
            Origin(format="orc", location="x"),
            "a backfill reads json, csv, parquet, delta, kafka, not",
        ),
        (Origin(format="json", location="x", data="y"), "a line of JSON is the payload"),
        (Origin(format="json", location="/no/such"), "does not exist"),
        (Origin(format="delta", location="/no/such"), "there is no Delta table in /no/such"),
        (Origin(format="parquet", location="x", fields="a long"), "fields are for csv"),
        (Origin(format="csv", location="x", fields="a lung"), "are no DDL like"),
    ],
)
def test_an_origin_that_cannot_be_read_is_refused(
    bench: Bench, origin: Origin, message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        bench.fill(origin)
    assert bench.data() == []


def test_a_column_that_is_not_there_is_told_with_those_that_are(
    bench: Bench, tmp_path: Path
) -> None:
    path = lines(tmp_path / "a.csv", "code,amount", "a,7")
    with pytest.raises(RequestError, match=r"has no column 'kind'; it has code, amount"):
        bench.fill(Origin(format="csv", location=str(path), tag="kind"))
