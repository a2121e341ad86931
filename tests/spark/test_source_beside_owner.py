"""The source beside an owner that never sits still, in another process: never a wrong row.

The owner writes, checkpoints, trims, deletes, rewrites, moves to cold and drops many times a
second. Every record's data is its seq, so a row from the wrong place shows at once.
"""

from __future__ import annotations

import subprocess
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.core.errors import DataLossError, TopicNotFoundError, UnavailableError
from headwater.spark.source.options import source_options
from headwater.spark.source.stream_reader import StreamReader
from tests.crash.matrix import FULL
from tests.e2e.owner_process import BATCH, CAP, start_owner
from tests.spark.direct_reader import Row, options_of, read, read_all, reader_of, sent

pytestmark = pytest.mark.e2e

ROUNDS = 150 if FULL else 40
LAST = ROUNDS * BATCH


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = start_owner(tmp_path / "data", ROUNDS, tmp_path / "cold")
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    yield process
    process.kill()
    process.communicate()


def acked(owner: subprocess.Popen[str]) -> Iterator[int]:
    """The newest promise of the owner, over and over; the end is the end of its work."""
    promises: deque[int] = deque([0], maxlen=1)

    def listen() -> None:
        assert owner.stdout is not None
        for line in owner.stdout:
            if line == "done\n":
                return
            promises.append(int(line.split()[1]))

    listener = threading.Thread(target=listen)
    listener.start()
    while listener.is_alive():
        yield promises[0]
    listener.join()
    yield promises[0]


def written_topic(tmp_path: Path, **options: Any) -> dict[str, Any]:
    return {"path": tmp_path / "data", "cold": tmp_path / "cold", **options}


def check(rows: list[Row]) -> list[int]:
    for row in rows:
        if row["gap"] is None:
            assert int(row["data"]) == row["seq"]
            assert row["tag"] == ("odd" if row["seq"] % 2 else "even")
            assert row["node"] == f"n{row['seq'] % 3}"
    seqs = [row["seq"] for row in rows if row["gap"] is None]
    assert seqs == sorted(set(seqs))
    return seqs


def test_what_is_acknowledged_is_read_whole_while_files_come_and_go(
    tmp_path: Path, owner: subprocess.Popen[str]
) -> None:
    for promised in acked(owner):
        for topic in ("whole", "quick"):
            seqs = check(read(**written_topic(tmp_path, topic=topic, rowsPerPartition=150)))
            assert seqs == list(range(1, len(seqs) + 1))
            assert len(seqs) >= promised
    assert len(check(read(**written_topic(tmp_path, topic="whole")))) == LAST


def test_an_old_plan_gives_its_rows_from_wherever_they_went(
    tmp_path: Path, owner: subprocess.Popen[str]
) -> None:
    plans: list[tuple[int, Any, list[Any]]] = []
    for promised in acked(owner):
        reader = reader_of(**written_topic(tmp_path, topic="whole", rowsPerPartition=100))
        plans.append((promised, reader, sent(reader.partitions())))
        if len(plans) > 8:  # what was planned eight rounds ago has moved by now
            before, old, planned = plans.pop(0)
            seqs = check(read_all(old, planned))
            assert seqs == list(range(1, len(seqs) + 1))
            assert len(seqs) >= before
    for before, old, planned in plans:
        assert len(check(read_all(old, planned))) >= before


def test_losses_to_a_cap_are_told_and_the_rest_is_whole(
    tmp_path: Path, owner: subprocess.Popen[str]
) -> None:
    for promised in acked(owner):
        if not promised:
            continue
        options = written_topic(tmp_path, topic="capped", startingSeq=1, failOnDataLoss=False)
        rows = read(**options)
        gaps = [row["gap"] for row in rows if row["gap"] is not None]
        seqs = check(rows)
        assert len(seqs) <= CAP + BATCH
        lost = [seq for gap in gaps for seq in range(gap["gap_from"], gap["gap_to"] + 1)]
        assert lost + seqs == list(range(1, len(lost) + len(seqs) + 1))
        assert len(lost) + len(seqs) >= promised
        assert all(gap["reason"] == "cap" for gap in gaps)
        if gaps:
            with pytest.raises(DataLossError, match="'capped' has lost seqs 1 to"):
                read(**{**options, "failOnDataLoss": True})


def test_deleted_records_are_gone_and_dropped_topics_are_no_surprise(
    tmp_path: Path, owner: subprocess.Popen[str]
) -> None:
    for promised in acked(owner):
        deleted_upto = promised // BATCH // 4 * 4 * BATCH  # after each fourth round, the odd ones
        seqs = check(read(**written_topic(tmp_path, topic="tagged")))
        assert [seq for seq in seqs if seq % 2 and seq <= deleted_upto] == []
        assert set(range(2, promised + 1, 2)) <= set(seqs)
        for name in ("short-0", "short-1"):
            try:
                rows = read(**written_topic(tmp_path, topic=name, failOnDataLoss=False))
            except (TopicNotFoundError, UnavailableError):
                continue
            assert all(row["gap"] is not None or row["data"] == "1" for row in rows)


def test_a_stream_reads_every_record_once_while_files_come_and_go(
    tmp_path: Path, owner: subprocess.Popen[str]
) -> None:
    options = options_of(None, written_topic(tmp_path, topicPattern="whole|quick"))
    from headwater.spark.source.data_source import HeadwaterDataSource

    schema = HeadwaterDataSource(options).schema()
    stream = StreamReader(source_options(options), schema)
    offset = stream.initialOffset()
    read: dict[str, list[int]] = {"quick": [], "whole": []}

    def advance() -> bool:
        nonlocal offset
        end = stream.latestOffset(offset, stream.getDefaultReadLimit())
        if end == offset:
            return False
        for row in read_all(stream, stream.partitions(offset, end)):
            check([row])
            read[row["topic"]].append(row["seq"])
        offset = end
        return True

    for promised in acked(owner):
        advance()
        assert len(read["whole"]) >= promised
    while advance():
        pass
    assert read == {name: list(range(1, LAST + 1)) for name in read}
    assert stream.reportLatestOffset() == offset
