"""A gateway prints records of sealed segments from the files, and nobody can tell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import numpy
import pytest

from headwater.config.engine import EngineSettings
from headwater.config.store import SegmentSettings
from headwater.core.units import US_PER_S
from headwater.engine.partition import FrameRun
from headwater.server.gateway.page_files import MAPS_MAX, UNUSED_US, FileChangedError, PageFiles
from headwater.server.http import json_rows
from headwater.testing import FakeDisk
from headwater.wire.frames import Projection
from headwater.wire.page import RECORDS_MIN, LocatedFrames
from tests.rig.segment_frames import encode_segment_frame
from tests.rig.server_process import TEST_WORKERS
from tests.server.running_server import RunningServer, running

RECORDS = 1_000
SMALL_SEGMENTS = EngineSettings(segments=SegmentSettings(segment_max_events=RECORDS // 4))


@pytest.fixture(scope="module", params=["0", "1"], ids=["one process", "a gateway"])
def stored(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """A topic whose records are all in sealed segments, some deleted."""
    directory: Path = tmp_path_factory.mktemp("pages") / "data"
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(TEST_WORKERS, request.param)
        with running(directory, engine_settings=SMALL_SEGMENTS) as server, server.talk() as http:
            records = [
                {"data": {"n": number}, "tag": f"t{number % 7}"} for number in range(RECORDS)
            ]
            http.write_records("t", *records)
        with running(directory, engine_settings=SMALL_SEGMENTS) as server:
            yield server


@pytest.fixture
def located(monkeypatch: pytest.MonkeyPatch) -> list[LocatedFrames]:
    """What the sequencer leaves to the gateway."""
    seen: list[LocatedFrames] = []
    locate = json_rows._located

    def watched(run: FrameRun, projection: Projection) -> LocatedFrames | None:
        found = locate(run, projection)
        seen.extend(() if found is None else (found,))
        return found

    monkeypatch.setattr(json_rows, "_located", watched)
    return seen


def numbers(records: list[dict[str, Any]]) -> list[int]:
    return [record["data"]["n"] for record in records]


def is_gateways(request: pytest.FixtureRequest) -> bool:
    return "a gateway" in request.node.name


@pytest.mark.parametrize("options", [{}, {"include_tags": True}, {"match": "t1"}, {"limit": 10}])
def test_a_read_gives_the_same_with_and_without_gateways(
    stored: RunningServer,
    located: list[LocatedFrames],
    options: dict[str, Any],
    request: pytest.FixtureRequest,
) -> None:
    with stored.talk() as http:
        answer = http.diff("t", 100, **{"limit": 600, **options})
    count = options.get("limit", 600)
    expected = [n for n in range(100, RECORDS) if "match" not in options or n % 7 == 1]
    found = answer.json
    assert numbers(found["records"]) == expected[: len(found["records"])]
    assert len(found["records"]) == (count if "match" not in options else len(found["records"]))
    assert ("$tag" in found["records"][0]) == ("include_tags" in options)
    assert found["head_seq"] == RECORDS
    pages = "match" not in options and count >= RECORDS_MIN and is_gateways(request)
    assert bool(located) == pages


def test_a_packed_answer_is_packed_by_the_gateway(stored: RunningServer) -> None:
    with stored.talk() as http:
        plain = http.diff("t", 0, limit=500)
        body = '{"from_seq":0,"limit":500}'
        packed = http.ask("POST", "/v0/topics/t/diff", body, {"accept-encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert len(packed.body) < len(plain.body) // 4


def test_an_answer_whose_file_is_gone_is_planned_again(
    stored: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a segment was rewritten between the plan and the reading."""
    locate, moved = json_rows._located, []

    def misplaced(run: FrameRun, projection: Projection) -> LocatedFrames | None:
        found = locate(run, projection)
        if found is not None:
            moved.append(found)
            found = found._replace(path=found.path + ".gone")
        return found

    monkeypatch.setattr(json_rows, "_located", misplaced)
    with stored.talk() as http:
        assert numbers(http.diff("t", 0, limit=400).json["records"]) == list(range(400))
        assert http.diff("t", 0, limit=1).status == 200


# -- the files


def frame(seq: int) -> bytes:
    return encode_segment_frame(seq, 7, data=b"1")


def frames_at(path: str, file_bytes: int, first_seq: int) -> LocatedFrames:
    offsets = numpy.array([0, len(frame(1))], numpy.int64)
    return LocatedFrames(path, file_bytes, first_seq, offsets, Projection())


@pytest.fixture
def disk() -> FakeDisk:
    found = FakeDisk(["/d"])
    found.write_file(PurePosixPath("/d/a"), frame(5) + frame(6))
    return found


def test_records_are_printed_from_the_file_that_is_meant(disk: FakeDisk) -> None:
    files = PageFiles(disk)
    size = 2 * len(frame(1))
    assert files.printed(frames_at("/d/a", size, 5), 0) == (
        b'{"$seq":5,"$ts":7,"data":1},{"$seq":6,"$ts":7,"data":1}'
    )
    for other in (
        frames_at("/d/a", size + 1, 5),
        frames_at("/d/a", size, 4),
        frames_at("/d/b", size, 5),
    ):
        with pytest.raises(FileChangedError):
            files.printed(other, 0)


def test_a_file_that_nobody_reads_any_more_is_let_go(disk: FakeDisk) -> None:
    files = PageFiles(disk)
    size = 2 * len(frame(1))
    files.printed(frames_at("/d/a", size, 5), 0)
    files.forget_unused(UNUSED_US - 1)
    assert len(files) == 1
    files.forget_unused(UNUSED_US)
    assert len(files) == 0


def test_the_number_of_mapped_files_is_bounded(disk: FakeDisk) -> None:
    files = PageFiles(disk)
    size = 2 * len(frame(1))
    for number in range(MAPS_MAX + 3):
        disk.write_file(PurePosixPath(f"/d/{number}"), frame(5) + frame(6))
        files.printed(frames_at(f"/d/{number}", size, 5), number * US_PER_S)
    assert len(files) == MAPS_MAX
