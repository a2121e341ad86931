"""Delta, Iceberg and Parquet behind one protocol: a batch is part of the table once, whole."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.core.errors import RequestError
from headwater.spark.tables.columns import merged
from headwater.spark.tables.delta import DeltaLake
from headwater.spark.tables.iceberg import IcebergLake
from headwater.spark.tables.location import TableLocation
from headwater.spark.tables.table import (
    AlreadyLandedError,
    OtherCheckpointError,
    Table,
    check_landing,
)
from tests.unit.spark.lake_tables import (
    COLUMNS,
    DAY,
    FORMATS,
    READERS,
    land,
    landing,
    row,
    rows_by_own_reader,
    table_at,
    write_files,
)

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::UserWarning", "ignore::ResourceWarning"
)


@pytest.fixture(params=FORMATS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    return table_at(request.param, tmp_path)


def numbers(table: Table) -> list[int]:
    return [each["seq"] for each in rows_by_own_reader(table)]


def test_a_table_has_no_columns_and_no_batch_before_its_first(table: Table) -> None:
    assert table.schema() is None
    assert table.landed(landing()) is None
    assert table.files() == []
    assert table.clean("app", -1) == 0


def test_batches_become_rows_that_every_reader_sees_alike(table: Table) -> None:
    land(table, landing(0), [row(1), row(2, amount=None)])
    land(table, landing(1), [row(3)])
    for name, read in READERS.items():
        assert read(table) == [row(1), row(2, amount=None), row(3)], name
    assert len(table.files()) == 2


def test_a_batch_that_is_there_is_refused_and_changes_nothing(table: Table) -> None:
    land(table, landing(0), [row(1)])
    land(table, landing(1), [row(2)])
    for batch in (0, 1):
        with pytest.raises(AlreadyLandedError):
            land(table, landing(batch), [row(9)])
    assert numbers(table) == [1, 2]


def test_of_two_drivers_with_the_same_batch_one_wins(table: Table) -> None:
    land(table, landing(0), [row(1)])
    other = type(table)(table.location)  # type: ignore[call-arg]
    mine = write_files(table, landing(1), [row(2)], COLUMNS, name="a")
    theirs = write_files(other, landing(1), [row(2)], COLUMNS, name="b")
    other.commit(landing(1), theirs)
    with pytest.raises(AlreadyLandedError):
        table.commit(landing(1), mine)
    assert numbers(table) == [1, 2]


def test_a_driver_that_read_the_table_before_the_other_committed_loses_too(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its look at the table and its commit, somebody else commits the same batch."""
    land(table, landing(0), [row(1)])
    other = type(table)(table.location)  # type: ignore[call-arg]
    already = {"before": False}

    def overtake() -> None:
        if not already["before"]:
            already["before"] = True
            other.commit(landing(1), write_files(other, landing(1), [row(2)], COLUMNS, name="b"))

    mine = write_files(table, landing(1), [row(2)], COLUMNS, name="a")
    if isinstance(table, DeltaLake):
        append = table._append

        def lose_then_append(*given: Any) -> None:
            overtake()
            append(*given)

        monkeypatch.setattr(table, "_append", lose_then_append)
    elif isinstance(table, IcebergLake):
        opened = table._open

        def open_then_lose() -> object:
            landed = opened()
            overtake()
            return landed

        monkeypatch.setattr(table, "_open", open_then_lose)
    else:
        pytest.skip("the lock of a Parquet table lets nobody in between")
    with pytest.raises(AlreadyLandedError):
        table.commit(landing(1), mine)
    assert numbers(table) == [1, 2]


def test_writers_of_other_apps_do_not_disturb_each_other(table: Table) -> None:
    other = type(table)(table.location)  # type: ignore[call-arg]
    for batch in range(3):
        land(table, landing(batch, app="one"), [row(batch)])
        land(other, landing(batch, app="two"), [row(10 + batch)])
    assert numbers(table) == [0, 1, 2, 10, 11, 12]
    landed = table.landed(landing(app="one"))
    assert landed is not None
    assert landed.batch == 2


def test_an_app_with_another_checkpoint_is_refused_with_the_reason(table: Table) -> None:
    land(table, landing(4), [row(1)])
    landed = check_landing(table, landing(5))
    assert landed is not None
    assert (landed.batch, landed.same_checkpoint) == (4, True)
    with pytest.raises(OtherCheckpointError, match="up to batch 4 with another checkpoint"):
        check_landing(table, landing(0, checkpoint="two"))
    assert check_landing(table, landing(0, app="another", checkpoint="two")) is None


def test_whether_the_last_batch_was_judged_by_the_same_rules_is_known(table: Table) -> None:
    land(table, landing(0, rules="a long, b string"), [row(1)])
    same, other = (table.landed(landing(1, rules=rules)) for rules in ("a long, b string", "a"))
    assert same is not None
    assert other is not None
    assert (same.same_rules, other.same_rules) == (True, False)


def test_new_columns_are_added_and_dropped_ones_become_null(table: Table) -> None:
    land(table, landing(0), [row(1)])
    more = pa.schema(
        [*(field for field in COLUMNS if field.name != "amount"), ("note", pa.string())]
    )
    wanted = table.evolve(more, ())
    assert wanted.names == [*COLUMNS.names, "note"]
    land(table, landing(1), [row(2, amount=None, note="x")], more)
    for name, read in READERS.items():
        assert read(table) == [row(1, note=None), row(2, amount=None, note="x")], name


def test_a_column_is_widened_where_the_format_can_and_kept_where_not(table: Table) -> None:
    land(table, landing(0), [row(1)])
    wider = COLUMNS.set(3, pa.field("amount", pa.int64()))
    after = table.evolve(wider, ())
    is_delta = isinstance(table, DeltaLake)
    assert after.field("amount").type == (pa.int32() if is_delta else pa.int64())
    big = 5 if is_delta else 2**40
    land(table, landing(1), [row(2, amount=big)], after)
    for name, read in READERS.items():
        assert [each["amount"] for each in read(table)] == [1, big], name
    narrow = table.evolve(COLUMNS, ())
    assert narrow.field("amount").type == after.field("amount").type


def test_a_column_of_another_type_is_refused_by_name(table: Table) -> None:
    land(table, landing(0), [row(1)])
    other = COLUMNS.set(3, pa.field("amount", pa.string()))
    with pytest.raises(RequestError, match=r"'amount' of .* is int32, and string is wanted"):
        table.evolve(other, ())
    assert numbers(table) == [1]


@pytest.mark.parametrize("by", [("date",), ("topic", "date"), ("amount",)])
def test_a_partitioned_table_has_the_same_rows(table: Table, by: tuple[str, ...]) -> None:
    later = DAY + datetime.timedelta(days=1)
    rows = [
        row(1),
        row(2, topic="a:b"),
        row(3, date=later),
        row(4, amount=None),
        row(5, topic="a:b", date=later, amount=1),
        row(7, topic="c d/%=e"),
    ]
    land(table, landing(0), rows, partition_by=by)
    land(table, landing(1), [row(6)], partition_by=by)
    expected = sorted([*rows, row(6)], key=lambda each: (each["topic"], each["seq"]))
    for name, read in READERS.items():
        assert read(table) == expected, name


def test_a_table_keeps_its_partitioning(table: Table) -> None:
    land(table, landing(0), [row(1)], partition_by=("date",))
    with pytest.raises(RequestError, match="is partitioned by date, not by topic"):
        table.evolve(COLUMNS, ("topic",))


@pytest.mark.parametrize(("by", "message"), [("nope", "no column 'nope'"), ("list", "list<")])
def test_what_nothing_can_be_partitioned_by_is_refused(table: Table, by: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        table.evolve(COLUMNS.append(pa.field("list", pa.list_(pa.int64()))), (by,))


def test_files_of_runs_that_died_are_deleted_and_no_others(table: Table, tmp_path: Path) -> None:
    land(table, landing(0), [row(1)])
    for batch in (1, 2, 1_005):
        write_files(table, landing(batch), [row(9)], COLUMNS, name=f"died-{batch}")
    others = write_files(table, landing(7, app="other"), [row(8)], COLUMNS)
    assert table.clean("app", 0) == 3
    assert table.clean("app", 0) == 0
    table.commit(landing(7, app="other"), others)
    assert numbers(table) == [1, 8]
    assert list(Path(table.location.uri).rglob("*died*")) == []


def test_files_of_tasks_that_were_given_up_are_deleted_after_the_commit(table: Table) -> None:
    land(table, landing(0), [row(1)])
    given_up = write_files(table, landing(1), [row(2)], COLUMNS, name="given-up")
    later = write_files(table, landing(2), [row(3)], COLUMNS, name="later")
    kept = write_files(table, landing(1), [row(2)], COLUMNS, name="kept")
    table.commit(landing(1), kept)
    assert table.discard(landing(1), [file.path for file in kept]) == len(given_up)
    table.commit(landing(2), later)
    assert numbers(table) == [1, 2, 3]


def test_a_batch_without_rows_counts_as_landed(table: Table) -> None:
    land(table, landing(0), [row(1)])
    table.commit(landing(1), [])
    landed = table.landed(landing())
    assert landed is not None
    assert landed.batch == 1
    assert numbers(table) == [1]


def test_nested_columns_come_back_as_they_were(table: Table) -> None:
    schema = pa.schema(
        [
            *COLUMNS,
            ("items", pa.list_(pa.struct([("sku", pa.string()), ("count", pa.int64())]))),
            ("labels", pa.map_(pa.string(), pa.string())),
            ("raw", pa.binary()),
        ]
    )
    rows = [row(1, items=[{"sku": "a", "count": 2}], labels=[("k", "v")], raw=b"\xff")]
    land(table, landing(0), rows, schema)
    assert rows_by_own_reader(table) == rows
    land(table, landing(1), [{**rows[0], "seq": 2}], schema)
    assert numbers(table) == [1, 2]


@pytest.mark.parametrize("text", ["lake/orders", "", "./x"])
def test_a_location_is_absolute_or_an_address(text: str) -> None:
    with pytest.raises(RequestError, match="absolute path or an address"):
        TableLocation.of(text)


def test_locations_are_spelled_one_way() -> None:
    assert TableLocation.of("file:///lake/orders/").uri == "/lake/orders"
    assert TableLocation.of("/lake//orders").as_uri == "file:///lake/orders"
    assert TableLocation.of("s3://bucket/orders/").uri == "s3://bucket/orders"


@pytest.mark.parametrize("kind", ["iceberg", "parquet"])
def test_what_an_object_store_cannot_hold_is_refused(kind: str) -> None:
    with pytest.raises(RequestError, match=r"catalog|delta or iceberg"):
        FORMATS[kind](TableLocation.of("s3://bucket/orders"))


def test_columns_that_differ_only_inside_are_the_same() -> None:
    """Formats name the element of a list each in their way."""
    ours = pa.schema([("l", pa.list_(pa.field("element", pa.int64())))])
    theirs = pa.schema([("l", pa.list_(pa.field("item", pa.int64(), nullable=False)))])
    assert merged(theirs, ours, lambda *_: False, "t").equals(theirs)
