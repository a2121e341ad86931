"""The log that version 1 wrote is still read, frame by frame. See tests/data/README.md."""

from __future__ import annotations

import json
import shutil
from pathlib import Path, PurePath
from typing import Any

import pytest
from msgspec.structs import asdict

from headwater.config.wal import WalSettings
from headwater.core.durability import Durability
from headwater.core.errors import DamageError
from headwater.disk import PosixDisk
from headwater.format.frame import FrameType, encode_frame
from headwater.format.log_state import (
    decode_current,
    decode_repairs,
    encode_current,
    encode_repairs,
)
from headwater.format.mark import MarkKind, decode_mark, pack_mark
from headwater.recovery.topics.repair import recover
from headwater.recovery.topics.replay import replay
from headwater.recovery.topics.report import inspect_wal
from headwater.testing import ManualClock
from headwater.wal.counters import WalCounters
from headwater.wal.frame_log import FrameLog
from headwater.wal.ticket import Ticket
from tests.data.write_wal_v1 import expected, shown

GOLDEN = Path(__file__).parents[2] / "data" / "wal-v1"
SETTINGS = WalSettings(shards=1, file_bytes=2048, reserve_bytes=128)


@pytest.fixture(scope="module")
def wanted() -> dict[str, Any]:
    answer: dict[str, Any] = json.loads((GOLDEN / "expected.json").read_text(encoding="utf-8"))
    return answer


def test_the_golden_log_is_read_as_it_was_when_it_was_written(wanted: dict[str, Any]) -> None:
    assert json.loads(json.dumps(expected())) == wanted


@pytest.mark.claims(130, 131, 132, 133, 134, 135, 136, 137, 138, 139, 140)
def test_the_golden_log_holds_every_type_of_frame(wanted: dict[str, Any]) -> None:
    types = {frame["type"] for group in wanted["groups"] for frame in group["frames"]}
    later = {FrameType.ROUTER_MARK, FrameType.ROUTER_PLACES, FrameType.SEQ_CEILINGS}
    assert types | {int(FrameType.COMMIT_MARK)} == {int(kind) for kind in set(FrameType) - later}


def test_encoding_the_golden_frames_again_gives_the_golden_bytes(wanted: dict[str, Any]) -> None:
    for group in wanted["groups"]:
        raw = (GOLDEN / "wal" / group["file"]).read_bytes()
        for frame in group["frames"]:
            encoded = encode_frame(
                frame["type"],
                frame["topic_id"],
                seq=frame["seq"],
                ts=frame["ts"],
                flags=frame["flags"],
                node=bytes.fromhex(frame["node"]),
                tag=bytes.fromhex(frame["tag"]),
                data=bytes.fromhex(frame["data"]),
            )
            assert raw[frame["offset"] : frame["offset"] + frame["size"]] == encoded


def test_the_golden_marks_are_of_all_kinds_and_encode_to_themselves() -> None:
    kinds = set()
    for path in sorted((GOLDEN / "wal").glob("wal-*.log")):
        raw = memoryview(path.read_bytes())
        mark = decode_mark(raw, 0, len(raw))
        while True:
            kinds.add(mark.kind)
            ts = int.from_bytes(raw[mark.offset + 22 : mark.offset + 30], "little")
            assert raw[mark.offset : mark.body_at] == pack_mark(ts, *mark)
            if mark.end + 134 > len(raw) or not any(raw[mark.end : mark.end + 134]):
                break
            mark = decode_mark(raw, mark.end, len(raw))
    assert kinds == {MarkKind.GROUP, MarkKind.IDLE, MarkKind.CLEAN_STOP}


def test_the_golden_current_and_repairs_encode_to_themselves(wanted: dict[str, Any]) -> None:
    current = (GOLDEN / "wal" / "CURRENT").read_bytes()
    assert encode_current(decode_current(current)) == current
    assert asdict(decode_current(current)) == wanted["current"]
    repairs = (GOLDEN / "wal" / "REPAIRS").read_bytes()
    assert encode_repairs(decode_repairs(repairs)) == repairs


def test_without_its_repairs_the_golden_log_is_refused_at_the_damaged_group(
    tmp_path: Path, wanted: dict[str, Any]
) -> None:
    shutil.copytree(GOLDEN, tmp_path, dirs_exist_ok=True)
    (tmp_path / "wal" / "REPAIRS").unlink()
    with pytest.raises(DamageError) as caught:
        recover(PosixDisk(), PurePath(tmp_path / "wal"), SETTINGS)
    assert caught.value.offset == wanted["skips"][0][1]


def test_the_golden_log_can_be_written_on_and_keeps_what_it_had(
    tmp_path: Path, wanted: dict[str, Any]
) -> None:
    shutil.copytree(GOLDEN, tmp_path, dirs_exist_ok=True)
    directory = PurePath(tmp_path / "wal")
    recovered = recover(PosixDisk(), directory, SETTINGS)
    position = recovered.positions[0]
    log = FrameLog(PosixDisk(), directory, SETTINGS, ManualClock(), position, WalCounters())
    log.open()
    body = encode_frame(FrameType.APPEND, 9, seq=1, data=b"new")
    log.write_group([Ticket(body, 1, Durability.FSYNC)], essential=False)
    log.witness(clean_stop=True)
    log.close()
    report = inspect_wal(PosixDisk(), directory)
    frames = [shown(f) for group in replay(PosixDisk(), report.shards) for f in group.frames()]
    old = [frame for group in wanted["groups"] for frame in group["frames"]]
    assert not report.refusals
    assert frames[:-1] == old
    assert (frames[-1]["topic_id"], frames[-1]["data"]) == (9, b"new".hex())
