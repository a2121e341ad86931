"""Filters handed down by Spark: what is taken over gives the rows Spark's own filter would."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

import headwater
from headwater.config.engine import EngineSettings
from headwater.config.store import SegmentSettings
from headwater.spark.source.filters import Filters, push
from tests.spark.direct_reader import Row, read, reader_of, sent

TAGS = (None, "x", "xy", "yx", "é", "")
COUNT = 200


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Two topics; half of each is in segments of sixteen, the rest in the log."""
    directory = tmp_path_factory.mktemp("filters") / "data"
    settings = EngineSettings(
        segments=SegmentSettings(segment_max_events=16), checkpoint_interval_ms=3_600_000
    )
    rng = Random(1)
    with headwater.open(directory, settings=settings) as db:
        for half in range(2):
            for topic in ("a", "b"):
                for _ in range(COUNT // 20):
                    records = [{"data": n, "tag": rng.choice(TAGS)} for n in range(10)]
                    db.append(topic, records)
            if not half:
                db.checkpoint()
        yield directory


@pytest.fixture(scope="module")
def rows(path: Path) -> list[Row]:
    return read(path, topics="a,b")


def compare(operator: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool | None]:
    return lambda rows, value: None if rows is None or value is None else operator(rows, value)


MEANING: dict[type[Filter], Callable[[Any, Any], bool | None]] = {
    EqualTo: compare(lambda a, b: a == b),
    GreaterThan: compare(lambda a, b: a > b),
    GreaterThanOrEqual: compare(lambda a, b: a >= b),
    LessThan: compare(lambda a, b: a < b),
    LessThanOrEqual: compare(lambda a, b: a <= b),
    In: compare(lambda a, b: a in b),
    StringStartsWith: compare(lambda a, b: a.startswith(b)),
    StringEndsWith: compare(lambda a, b: a.endswith(b)),
    StringContains: compare(lambda a, b: b in a),
    IsNull: lambda rows, _: rows is None,
    IsNotNull: lambda rows, _: rows is not None,
}


def holds(condition: Any, row: Row) -> bool | None:
    """As SQL has it: a comparison with nothing is neither true nor false."""
    if isinstance(condition, Not):
        inner = holds(condition.child, row)
        return None if inner is None else not inner
    value = getattr(condition, "value", None)
    return MEANING[type(condition)](row[condition.attribute[0]], value)


def some_filter(rng: Random, rows: list[Row]) -> Filter:
    row = rng.choice(rows)
    column = rng.choice(("seq", "ts", "topic", "tag"))
    kinds = [EqualTo, In, IsNotNull]
    if column in ("seq", "ts"):
        kinds += [GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]
    else:
        kinds += [StringStartsWith, StringEndsWith, StringContains, IsNull]
    kind: Any = rng.choice(kinds)
    value: Any = row[column] if row[column] is not None else "x"
    if column == "ts" and rng.random() < 0.5:
        value += timedelta(microseconds=rng.choice((-1, 1)))
    if kind in (IsNull, IsNotNull):
        made: Filter = kind((column,))
    elif kind is In:
        others = [rng.choice(rows)[column] for _ in range(3)]
        made = In((column,), tuple({value, *(each for each in others if each is not None)}))
    else:
        made = kind((column,), value)
    return Not(made) if column in ("topic", "tag") and rng.random() < 0.3 else made


@pytest.mark.parametrize("seed", range(150))
def test_rows_are_those_that_spark_would_keep(seed: int, path: Path, rows: list[Row]) -> None:
    rng = Random(seed)
    filters = [some_filter(rng, rows) for _ in range(rng.randrange(1, 4))]
    reader = reader_of(path, topics="a,b")
    left = list(reader.pushFilters(filters))
    result = [
        row
        for partition in reader.partitions()
        for batch in sent(reader).read(sent(partition))
        for row in batch.to_pylist()
    ]
    # What was given back is Spark's to evaluate; here the naive reading stands in for it.
    kept = [row for row in result if all(holds(each, row) for each in left)]
    expected = [row for row in rows if all(holds(each, row) for each in filters)]
    assert kept == expected
    assert not [each for each in left if not isinstance(each, Not)], "those are all ours"


@pytest.mark.parametrize(
    "given",
    [
        EqualTo(("data",), "x"),
        EqualTo(("gap", "gap_from"), 5),
        EqualTo(("seq",), 1.5),
        EqualTo(("seq",), True),
        EqualTo(("tag",), None),
        EqualNullSafe(("tag",), "x"),
        In(("tag",), ("x", None)),
        Not(EqualTo(("seq",), 5)),
        Not(StringContains(("tag",), "x")),
        GreaterThan(("ts",), datetime(2024, 1, 1)),  # noqa: DTZ001
        GreaterThan(("tag",), "x"),
    ],
)
def test_what_is_not_understood_to_the_last_null_is_left_to_spark(given: Filter) -> None:
    filters = Filters()
    assert push([given], ["seq", "ts", "topic", "tag", "data"], filters) == [given]
    assert filters == Filters()


def test_columns_that_are_not_in_the_schema_are_not_filtered_by() -> None:
    given = EqualTo(("seq",), 5)
    assert push([given], ["data"], Filters()) == [given]


# -- pruning


def partitions(path: Path, *filters: Filter, **options: Any) -> list[Any]:
    reader = reader_of(path, **{"topics": "a,b", "rowsPerPartition": 16, **options})
    assert list(reader.pushFilters(list(filters))) == []
    return reader.partitions()


def seqs_of(planned: list[Any]) -> list[tuple[str, int, int]]:
    return [
        (slice_.topic, split.first_seq, split.last_seq)
        for partition in planned
        for slice_ in partition.slices
        for split in slice_.splits
    ]


def test_seq_filters_leave_only_the_ranges_that_can_hold_them(path: Path) -> None:
    assert len(partitions(path)) > 10
    assert seqs_of(partitions(path, EqualTo(("seq",), 40))) == [("a", 40, 40), ("b", 40, 40)]
    only = partitions(path, In(("seq",), (3, 90)), EqualTo(("topic",), "b"))
    assert seqs_of(only) == [("b", 3, 14), ("b", 15, 16), ("b", 81, 90)]
    assert partitions(path, GreaterThan(("seq",), 10_000)) == []
    assert partitions(path, LessThan(("seq",), 1)) == []
    assert partitions(path, StringStartsWith(("topic",), "c")) == []


def test_time_filters_leave_out_segments_that_are_older_or_younger(
    path: Path, rows: list[Row]
) -> None:
    times = sorted({row["ts"] for row in rows})
    middle = times[len(times) // 2]
    every = len(partitions(path))
    older = len(partitions(path, LessThan(("ts",), middle)))
    younger = len(partitions(path, GreaterThanOrEqual(("ts",), middle)))
    assert older < every
    assert younger < every
    assert partitions(path, GreaterThan(("ts",), times[-1])) == []
    assert partitions(path, LessThan(("ts",), datetime(2000, 1, 1, tzinfo=UTC))) == []


def test_options_about_time_bound_the_rows_from_the_start_to_before_the_end(
    path: Path, rows: list[Row]
) -> None:
    times = sorted({row["ts"] for row in rows})
    first, last = times[len(times) // 3], times[2 * len(times) // 3]
    result = read(
        path, topics="a,b", startingTimestamp=first.isoformat(), endingTimestamp=last.isoformat()
    )
    assert result == [row for row in rows if first <= row["ts"] < last]


def test_options_about_seqs_include_both_ends(path: Path, rows: list[Row]) -> None:
    result = read(path, topics="a,b", startingSeq=10, endingSeq='{"a": 30}')
    assert result == [
        row for row in rows if row["seq"] >= 10 and (row["topic"] == "b" or row["seq"] <= 30)
    ]
    assert read(path, topics="a,b", startingSeq="latest") == []
