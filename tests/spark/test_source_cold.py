"""Cold segments: beside their data directory, and as an archive, on disk and in an object store."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan

import headwater
from headwater.core.errors import (
    DamageError,
    DataLossError,
    ForeignFileError,
    RequestError,
    TopicNotFoundError,
)
from headwater.disk import PosixDisk
from headwater.format.segment import SegmentPart
from headwater.spark.source.data_source import HeadwaterDataSource
from headwater.spark.source.directory import cold_tier
from headwater.spark.source.options import source_options
from headwater.spark.source.stream_reader import StreamReader
from tests.rig.s3_server import make_bucket, s3_server, url_of
from tests.spark.direct_reader import options_of, read, read_all, reader_of
from tests.spark.test_source_changes import SMALL, keep_house, seqs, write

ARCHIVED = 40
"""Of fifty records in segments of ten, all but the newest segment move."""
NAME = "00000001"


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    missing = [name for name in ("moto", "flask") if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"needs {' and '.join(missing)} for an S3 server")
    with s3_server() as address:
        yield address


@pytest.fixture(params=["disk", "s3"])
def cold(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "disk":
        (tmp_path / "cold").mkdir()
        return str(tmp_path / "cold")
    server: str = request.getfixturevalue("s3")
    bucket = f"bucket-{abs(hash(str(tmp_path))) % 10**9}"
    make_bucket(server, bucket)
    return url_of(server, bucket)


@pytest.fixture
def path(tmp_path: Path, cold: str) -> Path:
    with headwater.open(tmp_path / "data", settings=replace(SMALL, cold_url=cold)) as db:
        write(db, 50)
        keep_house(db)
    return tmp_path / "data"


def test_a_data_directory_and_its_cold_tier_are_read_as_one(path: Path, cold: str) -> None:
    assert seqs(read(path, topic="a", cold=cold)) == list(range(1, 51))
    result = read(path, filters=[EqualTo(("seq",), 5)], topic="a", cold=cold)
    assert seqs(result) == [5]


def test_deletes_in_cold_segments_are_honoured(path: Path, cold: str) -> None:
    settings = replace(SMALL, cold_url=cold)
    with headwater.open(path, settings=settings) as db:
        db.delete("a", match="odd")
        assert seqs(read(path, topic="a", cold=cold)) == list(range(2, 51, 2))
        db.checkpoint()
        assert seqs(read(path, topic="a", cold=cold)) == list(range(2, 51, 2))
    assert seqs(read(path, topic="a", cold=cold)) == list(range(2, 51, 2))


def test_a_cold_tier_by_itself_is_an_archive_by_number(path: Path, cold: str) -> None:
    rows = read(cold, topic=NAME)
    assert seqs(rows) == list(range(1, ARCHIVED + 1))
    assert {row["topic"] for row in rows} == {NAME}
    assert seqs(read(cold, topicPattern="0+1")) == list(range(1, ARCHIVED + 1))
    some = read(
        cold, filters=[GreaterThan(("seq",), 35)], topic=NAME, rowsPerPartition=3, endingSeq=39
    )
    assert seqs(some) == [36, 37, 38, 39]
    with pytest.raises(RequestError, match="knows topics by number"):
        read(cold, topic="a")
    with pytest.raises(TopicNotFoundError):
        read(cold, topic="000000FF")


def test_a_segment_that_is_not_in_the_archive_is_told(path: Path, cold: str) -> None:
    reader = reader_of(cold, topic=NAME, failOnDataLoss=False)
    planned = reader.partitions()
    cold_tier(PosixDisk(), cold).topic(1).delete(11)
    rows = read_all(reader, planned)
    assert seqs(rows) == [*range(1, 11), *range(21, ARCHIVED + 1)]
    (gap,) = [row["gap"] for row in rows if row["gap"]]
    assert (gap["gap_from"], gap["gap_to"], gap["reason"]) == (11, 20, "not_cold")
    with pytest.raises(DataLossError, match=r"seqs 11 to 20 \(not_cold\)"):
        read(cold, topic=NAME)


def test_damage_in_the_archive_is_told_with_the_seq(path: Path, cold: str) -> None:
    store = cold_tier(PosixDisk(), cold).topic(1)
    parts = [
        bytearray(store.read_range(11, part, 0, store.len(11, part)))
        for part in (SegmentPart.DATA, SegmentPart.IDX)
    ]
    parts[0][30] ^= 1
    store.put(11, *parts)
    with pytest.raises(DamageError, match="seq 11: checksum does not match") as caught:
        read(cold, topic=NAME)
    assert "secret" not in str(caught.value)
    rows = read(cold, topic=NAME, failOnDataLoss=False)
    assert seqs(rows) == [seq for seq in range(1, ARCHIVED + 1) if seq != 11]
    parts[0][30] ^= 1
    parts[1][3] ^= 1
    store.put(11, *parts)
    assert seqs(read(cold, topic=NAME)) == list(range(1, ARCHIVED + 1)), "the index is mended"


@pytest.mark.parametrize("part", [0, 1], ids=["data", "index"])
def test_a_file_of_another_segment_in_the_archive_is_refused(
    path: Path, cold: str, part: int
) -> None:
    store = cold_tier(PosixDisk(), cold).topic(1)
    mine, other = (
        [store.read_range(seq, each, 0, store.len(seq, each)) for each in SegmentPart]
        for seq in (11, 21)
    )
    mine[part] = other[part]
    store.put(11, *mine)
    with pytest.raises(ForeignFileError, match="this or its data is of another segment"):
        read(cold, topic=NAME)


def test_an_archive_is_a_stream_that_ends_where_it_ends(path: Path, cold: str) -> None:
    options: dict[str, Any] = options_of(cold, {"topic": NAME, "maxRecordsPerTrigger": 25})
    stream = StreamReader(source_options(options), HeadwaterDataSource(options).schema())
    offset, read = stream.initialOffset(), []
    while True:
        end = stream.latestOffset(offset, stream.getDefaultReadLimit())
        if end == offset:
            break
        rows = read_all(stream, stream.partitions(offset, end))
        assert len(rows) <= 25
        read += seqs(rows)
        offset = end
    assert read == list(range(1, ARCHIVED + 1))


def test_an_address_that_is_no_store_is_refused(path: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="a directory or a URL with s3://"):
        read(path, topic="a", cold="ftp://somewhere")
    with pytest.raises(RequestError, match="neither a data directory"):
        read(tmp_path, topic="a")
