"""The format headwater-table: rows of any query in a table, each batch once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.unit.spark.lake_tables import rows_by_own_reader, table_at

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
]
SLOW = pytest.mark.slow


def numbers(kind: str, root: Path) -> list[int]:
    return sorted(row["id"] for row in rows_by_own_reader(table_at(kind, root)))


def run_stream(spark: SparkSession, root: Path, kind: str, **options: str) -> None:
    rows = spark.readStream.schema("id long").json(str(root / "in"))
    writer = rows.writeStream.format("headwater-table").queryName("numbers")
    writer = writer.options(path=str(root / kind), table=kind, appId="numbers", **options)
    writer.trigger(availableNow=True).start().awaitTermination()


@pytest.mark.parametrize(
    "kind", ["delta", pytest.param("iceberg", marks=SLOW), pytest.param("parquet", marks=SLOW)]
)
def test_a_stream_lands_every_row_once_and_knows_its_checkpoint(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "in").mkdir()
    for number in range(3):
        lines = [f'{{"id":{number * 10 + each}}}' for each in range(10)]
        (tmp_path / "in" / f"{number}.json").write_text("\n".join(lines))
        run_stream(spark, tmp_path, kind, checkpointLocation=str(tmp_path / "checkpoint"))
    assert numbers(kind, tmp_path) == list(range(30))
    with pytest.raises(PySparkException, match="with another checkpoint"):
        run_stream(spark, tmp_path, kind, checkpointLocation=str(tmp_path / "lost"))
    assert numbers(kind, tmp_path) == list(range(30))
    files = {Path(name).name for name in table_at(kind, tmp_path).files()}
    there = {path.name for path in (tmp_path / kind).rglob("*.parquet*")}
    assert {name for name in there if not name.endswith(".checkpoint.parquet")} == files


def test_a_batch_write_under_an_id_is_made_once(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(20).selectExpr("id", "id % 2 odd")
    writer = rows.write.format("headwater-table").mode("append")
    writer = writer.options(path=str(tmp_path / "delta"), partitionBy="odd", writeId="import")
    for _ in range(2):
        writer.save()
    assert numbers("delta", tmp_path) == list(range(20))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": ""}, "say where the table is"),
        ({"path": "relative"}, "absolute path"),
        ({"table": "orc"}, "option table is one of delta"),
        ({"partitionBy": "nope"}, "no column 'nope'"),
        ({"tabel": "delta"}, "no option 'tabel'"),
    ],
)
def test_what_cannot_be_a_table_is_refused_by_option(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], message: str
) -> None:
    given: dict[str, Any] = {"path": str(tmp_path / "delta"), **options}
    with pytest.raises(PySparkException, match=message):
        spark.range(1).write.format("headwater-table").mode("append").options(**given).save()


def test_a_table_cannot_be_overwritten(spark: SparkSession, tmp_path: Path) -> None:
    writer = spark.range(1).write.format("headwater-table").mode("overwrite")
    with pytest.raises(PySparkException, match="only appended to"):
        writer.option("path", str(tmp_path / "delta")).save()
