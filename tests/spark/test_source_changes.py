"""Files that change between planning and reading: rows come from where they went, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater.config.engine import EngineSettings
from headwater.config.store import SegmentSettings
from headwater.config.wal import WalSettings
from headwater.core.errors import DamageError, DataLossError, RequestError, StorageError
from headwater.core.units import KIB
from headwater.spark.source.location import LogSplit, SegmentSplit
from headwater.spark.source.log_view import LogView
from tests.spark.direct_reader import Row, read, read_all, reader_of

SMALL = EngineSettings(
    wal=WalSettings(shards=1, file_bytes=16 * KIB, reserve_bytes=KIB, zero_chunk_bytes=4 * KIB),
    segments=SegmentSettings(segment_max_events=10, hot_retain_segments=1),
    checkpoint_interval_ms=3_600_000,
    checkpoint_tail_bytes=1,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def db(path: Path) -> Iterator[headwater.Database]:
    with headwater.open(path, settings=SMALL) as database:
        yield database


def write(db: headwater.Database, count: int, topic: str = "a") -> None:
    head = db.state(topic).head_seq if topic in {s.topic for s in db.topics()} else 0
    records = [
        {"data": seq, "tag": "odd" if seq % 2 else "even"}
        for seq in range(head + 1, head + count + 1)
    ]
    db.append(topic, records)


def keep_house(db: headwater.Database) -> None:
    """Everything a keeper does: checkpoint, snapshot, drop, rewrite, relocate, trim."""
    for _ in range(3):
        db.checkpoint()
        db.engine._housekeeping.round()


def kinds(partitions: list[Any]) -> set[type]:
    return {type(split) for p in partitions for s in p.slices for split in s.splits}


def seqs(rows: list[Row]) -> list[int]:
    assert all(row["gap"] is not None or int(row["data"]) == row["seq"] for row in rows)
    return [row["seq"] for row in rows if row["gap"] is None]


def test_records_of_the_log_are_read_from_segments_once_the_log_is_trimmed(
    path: Path, db: headwater.Database
) -> None:
    write(db, 50)
    reader = reader_of(path, topic="a")
    planned: list[Any] = list(reader.partitions())
    assert kinds(planned) == {LogSplit}
    keep_house(db)
    for _ in range(40):  # the log goes on, so that what was planned is trimmed away
        write(db, 30, "other")
        db.checkpoint()
    logs = {split.path for p in planned for s in p.slices for split in s.splits}
    assert not any(Path(log).exists() for log in logs)
    assert seqs(read_all(reader, planned)) == list(range(1, 51))


def test_an_active_segment_that_grew_and_was_sealed_gives_what_was_planned(
    path: Path, db: headwater.Database
) -> None:
    write(db, 15)
    db.checkpoint()
    reader = reader_of(path, topic="a")
    planned = reader.partitions()
    write(db, 30)
    keep_house(db)
    assert kinds(planned) == {SegmentSplit}
    assert seqs(read_all(reader, planned)) == list(range(1, 16))


def test_a_segment_moved_to_the_cold_tier_is_read_there(tmp_path: Path, path: Path) -> None:
    cold = tmp_path / "cold"
    cold.mkdir()
    write_hot(path)
    reader = reader_of(path, topic="a", cold=cold)
    planned = reader.partitions()
    with headwater.open(path, settings=replace(SMALL, cold_url=str(cold))) as db:
        keep_house(db)
    assert list(cold.rglob("seg-*.data"))
    assert seqs(read_all(reader, planned)) == list(range(1, 51))
    assert seqs(read(path, topic="a", cold=cold)) == list(range(1, 51))


def test_rows_that_were_given_before_a_move_are_not_given_again(tmp_path: Path, path: Path) -> None:
    (tmp_path / "cold").mkdir()
    write_hot(path)
    reader = reader_of(path, topic="a", cold=tmp_path / "cold")
    (partition,) = reader.partitions()
    batches = reader.read(partition)
    rows = next(batches).to_pylist()
    with headwater.open(path, settings=replace(SMALL, cold_url=str(tmp_path / "cold"))) as db:
        keep_house(db)
    for batch in batches:
        rows += batch.to_pylist()
    assert seqs(rows) == list(range(1, 51))


def write_hot(path: Path) -> None:
    with headwater.open(path, settings=SMALL) as db:
        write(db, 50)


def test_cold_segments_without_their_tier_fail_with_the_reason(tmp_path: Path, path: Path) -> None:
    write_hot(path)
    reader = reader_of(path, topic="a")
    planned = reader.partitions()
    with headwater.open(path, settings=replace(SMALL, cold_url=str(tmp_path / "cold"))) as db:
        keep_house(db)
    with pytest.raises(StorageError, match="in the cold tier, and there is none"):
        read_all(reader, planned)
    with pytest.raises(RequestError, match="there is no directory"):
        read(path, topic="a", cold=tmp_path / "nowhere")


def test_a_rewritten_segment_gives_its_live_records(path: Path, db: headwater.Database) -> None:
    write(db, 50)
    db.checkpoint()
    reader = reader_of(path, topic="a")
    planned = reader.partitions()
    db.delete("a", match="odd")
    keep_house(db)
    assert seqs(read_all(reader, planned)) == list(range(2, 51, 2))


def test_what_was_deleted_after_planning_is_not_in_the_rows(
    path: Path, db: headwater.Database
) -> None:
    write(db, 20)
    db.checkpoint()
    write(db, 20)
    reader = reader_of(path, topic="a")
    planned = reader.partitions()
    assert kinds(planned) == {SegmentSplit, LogSplit}
    db.delete("a", match="odd")
    assert seqs(read_all(reader, planned)) == list(range(2, 41, 2))
    db.delete("a", before_seq=30)
    assert seqs(read_all(reader, planned)) == list(range(30, 41, 2))
    write(db, 5)
    assert seqs(read_all(reader, planned)) == list(range(30, 41, 2)), "what came later is not"


def test_records_evicted_between_planning_and_reading_are_told(
    path: Path, db: headwater.Database
) -> None:
    write(db, 50)
    db.checkpoint()
    reader, tolerant = (
        reader_of(path, topic="a", failOnDataLoss=fail, rowsPerPartition=1_000)
        for fail in (True, False)
    )
    planned, again = reader.partitions(), tolerant.partitions()
    db.create("a", cap_records=15)
    keep_house(db)
    with pytest.raises(DataLossError, match=r"topic 'a' has lost seqs 1 to 35 \(cap\)"):
        read_all(reader, planned)
    rows = read_all(tolerant, again)
    assert rows[0]["gap"] == {
        "gap_from": 1, "gap_to": 35, "reason": "cap", "missed_estimate": 35,
    }  # fmt: skip
    assert (rows[0]["seq"], rows[0]["ts"], rows[0]["data"]) == (1, None, None)
    assert seqs(rows) == list(range(36, 51))


def test_a_topic_dropped_or_made_again_after_planning_is_told(
    path: Path, db: headwater.Database
) -> None:
    write(db, 20)
    db.checkpoint()
    reader = reader_of(path, topic="a", failOnDataLoss=False)
    planned = reader.partitions()
    db.drop("a")
    write(db, 30)
    for _ in range(2):
        rows = read_all(reader, planned)
        assert [row["gap"] and row["gap"]["reason"] for row in rows] == ["dropped"]
        assert (rows[0]["gap"]["gap_from"], rows[0]["gap"]["gap_to"]) == (1, 20)
        keep_house(db)  # the second time the files are gone too
    strict = reader_of(path, topic="a")
    with pytest.raises(DataLossError, match="dropped"):
        read_all(strict, planned)


def test_a_start_below_what_retention_took_is_told_at_once(
    path: Path, db: headwater.Database
) -> None:
    db.create("a", cap_records=10)
    write(db, 30)
    with pytest.raises(DataLossError, match=r"'a' has lost seqs 5 to 20 \(cap\)"):
        reader_of(path, topic="a", startingSeq=5).partitions()
    rows = read(path, topic="a", startingSeq=5, endingSeq=25, failOnDataLoss=False)
    assert (rows[0]["gap"]["gap_from"], rows[0]["gap"]["gap_to"]) == (5, 20)
    assert seqs(rows) == list(range(21, 26))
    assert seqs(read(path, topic="a")) == list(range(21, 31)), "the earliest is no loss"


def test_a_ttl_is_kept_though_nobody_writes_it_down(path: Path) -> None:
    with headwater.open(path, settings=SMALL) as db:
        db.create("a", ttl_ms=3_600_000)
        write(db, 25)
    assert seqs(read(path, topic="a")) == list(range(1, 26))
    with headwater.open(path, settings=SMALL) as db:
        db.create("a", ttl_ms=1)
    assert read(path, topic="a") == []
    rows = read(path, topic="a", startingSeq=3, failOnDataLoss=False)
    assert [row["gap"]["reason"] for row in rows] == ["ttl"]


# -- damage


def flip(file: Path, offset: int) -> None:
    contents = bytearray(file.read_bytes())
    contents[offset] ^= 0x40
    file.write_bytes(contents)


def stored(path: Path, first_seq: int, suffix: str) -> Path:
    (file,) = path.glob(f"topics/*/seg-{first_seq:016d}.{suffix}")
    return file


def test_a_damaged_frame_fails_the_query_with_file_and_offset(path: Path) -> None:
    write_hot(path)
    file = stored(path, 11, "data")
    flip(file, 30)
    with pytest.raises(DamageError) as caught:
        read(path, topic="a")
    assert f"seq 11: checksum does not match in {file} at byte 0" in str(caught.value)
    rows = read(path, topic="a", failOnDataLoss=False)
    assert seqs(rows) == [seq for seq in range(1, 51) if seq != 11]
    (gap,) = [row["gap"] for row in rows if row["gap"]]
    assert (gap["gap_from"], gap["gap_to"]) == (11, 11)
    assert gap["reason"].startswith("damaged: checksum does not match")


def test_without_checksums_headers_are_still_held_against_the_index(path: Path) -> None:
    write_hot(path)
    file = stored(path, 11, "data")
    flip(file, 31)  # a byte of the tag
    assert len(read(path, topic="a", verify=False)) == 50
    flip(file, 6)  # a byte of the seq
    with pytest.raises(DamageError, match="another seq"):
        read(path, topic="a", verify=False)


def test_a_damaged_index_entry_is_read_again_from_its_frame(path: Path) -> None:
    write_hot(path)
    flip(stored(path, 21, "idx"), 45)
    assert seqs(read(path, topic="a")) == list(range(1, 51))


@pytest.mark.parametrize("suffix", ["data", "idx"])
def test_a_missing_file_fails_the_query_and_names_it(path: Path, suffix: str) -> None:
    write_hot(path)
    file = stored(path, 21, suffix)
    file.unlink()
    with pytest.raises(DamageError) as caught:
        read(path, topic="a")
    assert str(file) in str(caught.value)


def test_a_missing_segment_is_a_loss_that_is_told(path: Path) -> None:
    write_hot(path)
    for suffix in ("data", "idx"):
        stored(path, 21, suffix).unlink()
    with pytest.raises(DataLossError, match=r"seqs 21 to 30 \(lost_tail\)"):
        read(path, topic="a")


def test_damage_to_the_log_is_refused_with_file_and_offset(path: Path) -> None:
    with headwater.open(path, settings=SMALL) as db:
        write(db, 5)
        write(db, 5)
        reader = reader_of(path, topic="a")
        planned: list[Any] = list(reader.partitions())
        (split,) = planned[0].slices[0].splits[:1]
        flip(Path(split.path), int(split.offsets[2]) + 45)
        with pytest.raises(DamageError) as caught:
            read_all(reader, planned)
        assert str(split.path) in str(caught.value)
        flip(Path(split.path), int(split.offsets[2]) + 45)  # as it was: the owner goes on


def test_no_directory_and_no_topic_are_told_as_such(path: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="neither a data directory"):
        read(tmp_path / "nothing", topic="a")
    write_hot(path)
    with pytest.raises(RequestError, match="no topic 'b'"):
        read(path, topic="b")
    assert read(path, topicPattern="b.*") == []


def test_a_huge_record_among_small_ones_is_read_whole(path: Path) -> None:
    with headwater.open(path) as db:
        db.append("a", [{"data": "x"}, {"data": "y" * 1_000_000}, {"data": "z"}])
        log = read(path, topic="a", bytesPerPartition=10_000)
        db.checkpoint()
    for rows in (log, read(path, topic="a"), read(path, topic="a", bytesPerPartition=10_000)):
        assert [len(row["data"]) for row in rows] == [3, 1_000_002, 3]


def test_many_small_topics_share_a_task(path: Path, db: headwater.Database) -> None:
    for number in range(40):
        write(db, 3, f"t{number:02d}")
    reader = reader_of(path, topicPattern="t.*")
    planned = reader.partitions()
    assert len(planned) == 1
    rows = read_all(reader, planned)
    assert [(row["topic"], row["seq"]) for row in rows] == [
        (f"t{number:02d}", seq) for number in range(40) for seq in (1, 2, 3)
    ]


def test_a_view_follows_what_is_written_and_is_taken_anew_when_it_cannot(
    path: Path, db: headwater.Database
) -> None:
    from headwater.spark.source.directory import Directory

    write(db, 5)
    directory = Directory(str(path))
    taken: list[LogView] = []

    def head(view: LogView) -> int:
        taken.append(view)
        topic = view.find("a")
        assert topic is not None
        return topic.head_seq

    assert directory.now(head) == 5
    write(db, 5)
    assert directory.now(head) == 10
    assert taken[0] is taken[1], "only told what came since"
    db.checkpoint()
    write(db, 1)
    assert directory.now(head) == 11
    for _ in range(60):
        write(db, 30, "other")
        db.checkpoint()
    assert directory.now(head) == 11
    assert taken[-1] is not taken[0]
