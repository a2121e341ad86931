"""Spark over a topic, beside spark.read.json and spark.read.parquet of the same rows.

`make bench-spark`. One session, queries in turns, best of three. Every way of reading must find
the same number of records and the same sums, or there are no figures.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.log_under_test import WrongResultError
from bench.registry import SPARK, MissingToolError, Row, Run, benchmark
from bench.spark.data import Expected, fill_topic, payload_note, size_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from bench.spark.contenders import Contender

ROUNDS = 3
Query = Callable[["Contender"], Any]


@contextmanager
def session(run: Run, master: str) -> Iterator[SparkSession]:
    try:
        import headwater.spark
        from bench.spark.contenders import TupleSource
        from headwater.spark.sessions.java import find_java
    except ImportError as error:
        raise MissingToolError(f"{error}; pip install 'headwater[spark]'") from error
    spark = headwater.spark.session("bench", master, spark_driver_memory="4g")
    note = f"PySpark {metadata.version('pyspark')}, Java {find_java().version}"
    if note not in run.notes:
        run.notes.append(note)
    try:
        spark.dataSource.register(TupleSource)
        yield spark
    finally:
        spark.stop()


@benchmark("spark-reads", "How fast does Spark read a topic, beside JSON and Parquet?", SPARK)
def spark_reads(run: Run) -> list[Row]:
    count = run.size(2_000_000, 20_000)
    expected = Expected(count)
    directory = fill_topic(run.directory / "data", count)
    with session(run, "local[2]") as spark:
        contenders = _contenders(spark, run, directory)
        for each in contenders:
            _check(each, expected)
        rows: list[Row] = []
        for name, query in _queries(count).items():
            rows += _measured(run, name, query, contenders, count)
    return rows


def _contenders(spark: SparkSession, run: Run, directory: Path) -> list[Contender]:
    from bench.spark import contenders as ways

    ours = ways.headwater_frames(spark, directory)
    json_directory, parquet_directory = run.directory / "json", run.directory / "parquet"
    ways.export(ours, json_directory, parquet_directory)
    places = {
        "topic": directory / "topics",
        "JSON": json_directory,
        "Parquet": parquet_directory,
    }
    sizes = [f"{name} {size_of(place) / 1e6:,.0f} MB" for name, place in places.items()]
    run.notes.append(", ".join(sizes))
    return [
        ways.json_frames(spark, json_directory),
        ways.parquet_frames(spark, parquet_directory),
        ours,
        ways.headwater_frames(spark, directory, verify="false"),
        ways.headwater_frames(spark, directory, "headwater_tuples"),
    ]


def _scan(contender: Contender) -> None:
    """Every column of every row reaches a sink that throws it away."""
    contender.all_columns().write.format("noop").mode("overwrite").save()


def _sum(contender: Contender) -> int:
    found: int = contender.amounts().selectExpr("sum(amount)").collect()[0][0]
    return found


def _by_tag(contender: Contender) -> dict[str, int]:
    return {row.tag: row["count"] for row in contender.tags().groupBy("tag").count().collect()}


def _queries(count: int) -> dict[str, Query]:
    return {
        "scan of all columns": _scan,
        "count": lambda contender: contender.all_columns().count(),
        "group by tag": _by_tag,
        "sum of a payload field": _sum,
        "lookup by seq": lambda contender: (
            contender.all_columns().where(f"seq = {count // 3}").collect()
        ),
    }


def _check(contender: Contender, expected: Expected) -> None:
    rows = contender.all_columns().count()
    found = (rows, _sum(contender), _by_tag(contender))
    wanted = (expected.records, expected.amount, expected.tags)
    if found != wanted:
        raise WrongResultError(f"{contender.name} found {found}, not {wanted}")


def _measured(
    run: Run, name: str, query: Query, contenders: Sequence[Contender], count: int
) -> list[Row]:
    """In turns, so that whatever else the machine does falls on all of them; the best counts."""
    best = {each.name: float("inf") for each in contenders}
    for _ in range(1 if run.quick else ROUNDS):
        for each in contenders:
            began = time.perf_counter()
            query(each)
            best[each.name] = min(best[each.name], time.perf_counter() - began)
    is_lookup = name == "lookup by seq"
    told = {"payload": payload_note(), "durability": "fsync", "records": f"{count:,}"}
    rows = [
        Row(
            f"{name}: {each.name}",
            (1 if is_lookup else count) / best[each.name],
            "lookups/s" if is_lookup else "records/s",
            {**told, "seconds": f"{best[each.name]:.2f}"},
        )
        for each in contenders
    ]
    baseline = rows[0]
    parquet = rows[1]
    compared = [rows[0], rows[1], *(row.against(baseline) for row in rows[2:])]
    if name == "scan of all columns":
        compared.append(rows[2].against(parquet))
    return compared


@benchmark("spark-growth", "How does it grow with cores and with records?", SPARK)
def spark_growth(run: Run) -> list[Row]:
    from bench.spark import contenders as ways

    small = run.size(1_000_000, 10_000)
    large = run.size(10_000_000, 20_000)
    directories = {count: fill_topic(run.directory / f"{count}", count) for count in (small, large)}
    found: dict[tuple[str, int, str], float] = {}
    queries: dict[str, Query] = {"scan of all columns": _scan, "sum of a payload field": _sum}
    for master in ("local[1]", "local[2]"):
        with session(run, master) as spark:
            for count, directory in directories.items():
                ours = ways.headwater_frames(spark, directory)
                _check(ours, Expected(count))
                for name, query in queries.items():
                    found[name, count, master] = count / _best(run, query, ours)
    return _growth_rows(found, small, large)


def _best(run: Run, query: Query, contender: Contender) -> float:
    """Seconds of the quickest of some times."""
    best = float("inf")
    for _ in range(1 if run.quick else ROUNDS):
        began = time.perf_counter()
        query(contender)
        best = min(best, time.perf_counter() - began)
    return best


def _growth_rows(found: dict[tuple[str, int, str], float], small: int, large: int) -> list[Row]:
    rows: list[Row] = []
    told = {"payload": payload_note(), "durability": "fsync"}
    names = list(dict.fromkeys(name for name, _, _ in found))
    for name in names:
        made = {
            (count, master): Row(
                f"{name}, {count:,} records, {master}",
                found[name, count, master],
                "records/s",
                told,
            )
            for count in (small, large)
            for master in ("local[1]", "local[2]")
        }
        rows.append(made[small, "local[1]"])
        rows.append(made[small, "local[2]"].against(made[small, "local[1]"]))
        rows.append(made[large, "local[1]"].against(made[small, "local[1]"]))
        rows.append(made[large, "local[2]"].against(made[small, "local[2]"]))
    return rows
