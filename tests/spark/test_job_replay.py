"""Replay: the log of machines becomes the instances the store has, at its end or before it."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePath
from typing import Any

import msgspec
import pyarrow.parquet
import pytest
from deltalake import DeltaTable
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession

import headwater
from headwater.core.errors import DamageError, RequestError
from headwater.format.machines.names import segment_of, within_segment
from headwater.model.machines.instance import Instance
from headwater.spark.jobs.machine_log import split_rows, view_machine_log
from headwater.spark.jobs.machine_replay import (
    LiveState,
    ReplayOptions,
    difference,
    fold,
    live_state,
    run,
)
from headwater.testing import FakeDisk, ManualClock
from tests.rig.machines import ORDER, SMALL, SteppedStore, new_disk

DATA = PurePath("/data")
ROUND = ("PAY", "SHIP", "CLOSE", "AGAIN")


def folded(
    disk: FakeDisk, until: int | None = None, at_ms: int | None = None
) -> dict[str, tuple[object, ...]]:
    """What Spark does, without Spark: pieces, a shuffle, an order, a fold."""
    view = view_machine_log(disk, DATA, lambda f, items: [f(item) for item in items], until, at_ms)
    rows = [row for survey in view.splits for row in split_rows(disk, survey)]
    random.Random(7).shuffle(rows)
    return {row[0]: row for row in fold(sorted(rows, key=lambda row: row[:2]), view.end)}


def as_row(instance: Instance) -> tuple[object, ...]:
    return (
        instance.machine,
        instance.version,
        instance.state,
        instance.ctx.decode(),
        instance.created_at * 1_000,
        instance.updated_at * 1_000,
        instance.last_wal_offset,
        instance.doubtful,
    )


def living(rows: dict[str, tuple[object, ...]]) -> dict[str, tuple[object, ...]]:
    return {name: row[1:9] for name, row in rows.items() if not row[9]}


def lives(disk: FakeDisk, *, compacts: bool) -> Iterator[SteppedStore]:
    """The store after every change of a random life."""
    store = SteppedStore(disk, replace(SMALL, allow_flush_all=True), ManualClock())
    store.do(lambda: store.put_machine("order", 1, ORDER))
    chance = random.Random(11)
    event_counts = dict.fromkeys("abcdef", 0)
    for turn in range(90):
        store.clock.advance(1_500_000)
        name = chance.choice(sorted(event_counts))
        if name not in store.tables.instances:
            if name in store.tables.retired_ids:
                continue
            store.do(partial(store.create_instance, "order", 1, name, {"total": 5, "n": turn}))
            event_counts[name] = 0
        elif chance.random() < 0.05:
            store.do(partial(store.delete_instance, name))
        else:
            event = ROUND[event_counts[name] % 4]
            event_counts[name] += 1
            payload = {"turn": turn} if chance.random() < 0.5 else None
            store.do(partial(store.apply_event, name, event, payload))
        if compacts and turn in (45, 60):
            store.compact()
        yield store


@pytest.mark.parametrize("compacts", [False, True])
def test_a_replay_gives_what_the_store_had_at_every_offset(compacts: bool) -> None:
    disk = new_disk()
    moments = []
    for store in lives(disk, compacts=compacts):
        now = {name: as_row(each) for name, each in store.tables.instances.items()}
        moments.append((store.committed_offset, store.clock.wall_ms(), now))
    assert living(folded(disk)) == moments[-1][2]
    oldest = _oldest(disk) if compacts else 0
    assert any(end < oldest for end, _, _ in moments) is compacts
    for end, at_ms, now in moments[::5]:
        if end < oldest:
            with pytest.raises(RequestError, match="does not reach back"):
                folded(disk, until=end - 1)
            with pytest.raises(RequestError, match="does not reach back"):
                folded(disk, at_ms=at_ms - 2_000)
        else:
            assert living(folded(disk, until=end - 1)) == now
            assert compacts or living(folded(disk, at_ms=at_ms)) == now


def _oldest(disk: FakeDisk) -> int:
    """Where the older snapshot goes on."""
    [index] = [data for path, data in disk.files().items() if path.name == "index.json"]
    offset: int = msgspec.json.decode(index)["snapshots"][0]["wal_offset"]
    return offset


def test_a_damaged_log_is_refused_with_file_and_offset() -> None:
    disk = new_disk()
    *_, store = lives(disk, compacts=False)
    offset = store.tables.instances["a"].last_wal_offset
    path = next(p for p in disk.files() if p.name == f"{segment_of(offset):016x}.wal")
    content = bytearray(disk.files()[path])
    store.close()
    content[within_segment(offset) + 30] ^= 1
    disk.write_file(path, bytes(content))
    with pytest.raises(DamageError) as caught:
        folded(disk)
    assert caught.value.offset == within_segment(offset)
    assert str(caught.value.path) == str(path)


def test_flushed_instances_are_not_in_a_replay() -> None:
    disk = new_disk()
    *_, store = lives(disk, compacts=True)
    store.do(store.flush_all)
    assert folded(disk) == {}


def test_what_changed_while_it_was_asked_for_is_no_difference() -> None:
    log = {"instance_id": "a", "state": "new", "machine": "m", "version": 1, "ctx": "{}"}
    live = {"id": "a", "live_state": "new", "live_machine": "m", "live_version": 1}
    row = {**log, **live, "live_ctx": "{}", "deleted": False}
    nobody = dict.fromkeys((*live, "live_ctx", "live_offset"))
    assert difference({**row, "wal_offset": 5, "live_offset": 5}, end=6) == ""
    assert difference({**row, "wal_offset": 9, "live_offset": 5}, end=6) is None
    assert difference({**row, "wal_offset": 5, "live_offset": 3}, end=6)
    assert difference({**row, "wal_offset": 3, "live_offset": 5}, end=6)
    assert difference({**row, "wal_offset": 5, "live_offset": 5, "deleted": True}, end=6)
    assert difference({**row, **nobody, "wal_offset": 9}, end=6) is None
    assert difference({**row, **nobody, "wal_offset": 5}, end=6)
    assert difference({**row, **nobody, "wal_offset": 5, "deleted": True}, end=6) == ""


# -- on Spark


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("replay") / "data"
    with headwater.open(directory) as database:
        machines = database.machines
        machines.put_machine("order", 1, ORDER)
        for number in range(40):
            machines.create_instance("order", 1, f"i{number}", {"total": 5, "n": number})
            for event in ROUND[: number % 5]:
                machines.apply_event(f"i{number}", event, {"by": event})
        machines.delete_instance("i3")
    return directory


def live_of(directory: Path) -> LiveState:
    with headwater.open(directory) as database:
        return live_state(database.machines)


@pytest.mark.spark
def test_a_replay_agrees_with_the_live_state_and_tells_where_it_does_not(
    spark: SparkSession, data: Path
) -> None:
    live = live_of(data)
    changed = [
        each._replace(state="elsewhere") if each.id == "i7" else each
        for each in live.instances
        if each.id != "i9"
    ]
    changed.append(live.instances[0]._replace(id="stranger"))
    changed = [each._replace(ctx='{"n":-1}') if each.id == "i8" else each for each in changed]
    report = run(spark, ReplayOptions(path=str(data)), None, LiveState(live.end, changed))
    assert (report.ok, report.instances, report.deleted) == (False, 39, 1)
    assert (report.compared, report.differences, report.changed_since) == (41, 4, 0)
    assert report.rows[0]["instance_id"] == "i0"
    assert sum(each.instances for each in report.states) == 39
    assert [each.instance_id for each in report.listed] == ["i7", "i8", "i9", "stranger"]
    words = ("state is", "ctx is", "not live", "does not know")
    assert [word in each.what for each, word in zip(report.listed, words, strict=True)] == [
        True
    ] * 4


@pytest.mark.spark
@pytest.mark.parametrize(
    "table_format",
    [
        "parquet",
        pytest.param("delta", marks=pytest.mark.slow),
        pytest.param("iceberg", marks=pytest.mark.slow),
    ],
)
def test_a_replay_lands_in_a_table_once(
    spark: SparkSession, data: Path, tmp_path: Path, table_format: str
) -> None:
    options = ReplayOptions(path=str(data), table=str(tmp_path / "t"), format=table_format)
    report = run(spark, options)
    assert (report.ok, report.instances, report.rows) == (True, 39, ())
    assert run(spark, options).ok
    rows = rows_of(tmp_path / "t", table_format)
    assert len(rows) == 40
    assert {row["instance_id"] for row in rows if row["deleted"]} == {"i3"}
    assert {row["as_of"] for row in rows} == {report.as_of}


def rows_of(table: Path, table_format: str) -> list[dict[str, Any]]:
    """By a reader of each format that is not ours."""
    if table_format == "delta":
        rows: list[dict[str, Any]] = DeltaTable(table).to_pyarrow_table().to_pylist()
        return rows
    files = sorted(table.rglob("*.parquet"))
    if table_format == "iceberg":
        newest = max(table.rglob("*.metadata.json"), key=lambda path: path.name)
        return list(StaticTable.from_metadata(str(newest)).scan().to_arrow().to_pylist())
    return [row for file in files for row in pyarrow.parquet.read_table(file).to_pylist()]


# -- the verb


@pytest.mark.spark
def test_the_verb_shows_instances_as_of_an_offset_and_lands_them(
    headwater_pipeline: Callable[..., tuple[int, str]], data: Path, tmp_path: Path
) -> None:
    code, output = headwater_pipeline("replay", "--path", data, "--json", "--check", "--limit", 2)
    assert code == 0, output
    report = json.loads(output)
    assert (report["instances"], report["deleted"], report["differences"]) == (39, 1, 0)
    assert (len(report["rows"]), report["compared"]) == (2, 40)
    first = report["rows"][0]["wal_offset"]
    table = tmp_path / "early"
    flags = ("--at-offset", first, "--table", table, "--format", "parquet")
    code, output = headwater_pipeline("replay", "--path", data, *flags)
    assert code == 0, output
    early = rows_of(table, "parquet")
    assert f"{len(early):,} instances in" in output
    assert 0 < len(early) < 40
    assert all(row["wal_offset"] <= first for row in early)


@pytest.mark.spark
def test_the_verb_refuses_what_contradicts_itself_and_damage_with_its_place(
    headwater_pipeline: Callable[..., tuple[int, str]], data: Path, tmp_path: Path
) -> None:
    for flags in (
        ("--url", "http://127.0.0.1:1"),
        ("--at-offset", 1, "--at", "2026-01-31T12:00:00Z"),
        ("--at-offset", 1, "--check"),
        ("--format", "csv"),
    ):
        code, output = headwater_pipeline("replay", "--path", data, *flags)
        assert code != 0, (flags, output)
    copy = tmp_path / "copy"
    shutil.copytree(data, copy)
    log = max(copy.rglob("*.wal"), key=lambda path: path.stat().st_size)
    harmed = bytearray(log.read_bytes())
    harmed[harmed.index(b"i20") + 1] ^= 1
    log.write_bytes(harmed)
    code, output = headwater_pipeline("replay", "--path", copy)
    assert code != 0, output
    assert log.name in output
