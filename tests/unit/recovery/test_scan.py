"""Where a log ends: torn, damaged, foreign, newer, told apart by the witnesses (I5)."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from headwater.format.checksum import checksum64
from headwater.format.frame import FrameType, encode_frame
from headwater.format.mark import MARK_BYTES, CommitMark, chain_of, find_mark, pack_mark
from headwater.recovery.topics.scan import FileScan, MarkChain, Surroundings, is_zero, scan_file
from headwater.recovery.topics.table import FileVerdict

FILE_BYTES = 2048
RECORD = encode_frame(FrameType.APPEND, 1, seq=1, data=b"payload")


class LogFile:
    """A file of groups, made by hand."""

    def __init__(self, number: int = 1, log_id: int = 5) -> None:
        self.number = number
        self.log_id = log_id
        self.raw = b""
        self.frame = number
        self.chain = 0
        self.starts: list[int] = []

    def add(self, body: bytes = RECORD, durable: int = 0, **changes: int) -> LogFile:
        fields = {
            "version": 1,
            "kind": 0,
            "frame_count": 1 if body else 0,
            "body_bytes": len(body),
            "body_hash": checksum64(body),
            "run": 1,
            "log_id": self.log_id,
            "file_frame": self.number,
            "file_bytes": FILE_BYTES,
            "frame": self.frame,
            "offset": len(self.raw),
            "durable_offset": durable,
            "chain": self.chain,
            **changes,
        }
        mark = pack_mark(0, *CommitMark(**fields))
        self.starts.append(len(self.raw))
        self.raw += mark + body
        self.chain = chain_of(mark)
        self.frame += 1 + fields["frame_count"]
        return self

    def padded(self) -> bytes:
        return self.raw.ljust(FILE_BYTES, b"\0")


def scan(raw: bytes, number: int = 1, around: Surroundings | None = None) -> FileScan:
    found = FileScan(PurePosixPath("wal"), number)
    scan_file(memoryview(raw), found, MarkChain(), around or Surroundings(made_bytes=FILE_BYTES))
    return found


def flip(raw: bytes, at: int) -> bytes:
    return raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]


@pytest.mark.claims(205)
def test_whole_groups_and_then_zeros_are_clean() -> None:
    log = LogFile().add().add(durable=10)
    found = scan(log.padded())
    assert (found.verdict, found.end, found.groups) == (FileVerdict.CLEAN, len(log.raw), 2)


def test_a_file_of_zeros_is_empty() -> None:
    assert scan(bytes(FILE_BYTES)).verdict is FileVerdict.EMPTY


@pytest.mark.claims(142)
@pytest.mark.parametrize("offset", [4, 40, MARK_BYTES - 1, MARK_BYTES, MARK_BYTES + 50])
def test_an_unwitnessed_bad_group_at_the_end_is_a_torn_tail(offset: int) -> None:
    log = LogFile().add().add()
    found = scan(flip(log.padded(), log.starts[1] + offset))
    assert (found.verdict, found.end, found.groups) == (FileVerdict.TORN, log.starts[1], 1)


@pytest.mark.claims(141)
def test_a_group_whose_lengths_run_past_the_end_of_the_file_is_torn() -> None:
    log = LogFile().add().add(body_bytes=FILE_BYTES)
    assert scan(log.padded()).verdict is FileVerdict.TORN
    short = LogFile().add()
    frame = (FILE_BYTES * 2).to_bytes(4, "little") + b"\x0c" * 60
    found = scan((short.raw + frame).ljust(FILE_BYTES, b"\0"))
    assert (found.verdict, found.end) == (FileVerdict.TORN, len(short.raw))


def test_the_same_bad_group_is_damage_when_a_later_mark_knew_it_synced() -> None:
    log = LogFile().add()
    log.add()
    log.add(durable=len(log.raw))
    found = scan(flip(log.padded(), log.starts[1] + 20))
    assert (found.verdict, found.end, found.resume) == (
        FileVerdict.DAMAGED,
        log.starts[1],
        log.starts[2],
    )
    assert found.frames_lost == 2


def test_a_later_mark_that_knew_less_does_not_make_it_damage() -> None:
    """Unsynced groups may reach the disk in any order."""
    log = LogFile().add().add().add(durable=10)
    found = scan(flip(log.padded(), log.starts[1] + 20))
    assert found.verdict is FileVerdict.TORN


def test_current_is_a_witness_too() -> None:
    log = LogFile().add().add()
    broken = flip(log.padded(), log.starts[1] + 20)
    around = Surroundings(witnessed=len(log.raw), made_bytes=FILE_BYTES)
    assert scan(broken, around=around).verdict is FileVerdict.DAMAGED
    assert scan(bytes(FILE_BYTES), around=around).verdict is FileVerdict.DAMAGED


def test_zeros_end_the_log_only_if_they_run_to_the_end_of_the_file() -> None:
    log = LogFile().add().add()
    hole = log.raw[: log.starts[1]] + bytes(40) + log.raw[log.starts[1] + 40 :]
    assert scan(hole.ljust(FILE_BYTES, b"\0")).verdict is FileVerdict.TORN
    stray = log.padded()[:-1] + b"\x01"
    assert scan(stray).verdict is FileVerdict.TORN


def test_a_cut_file_is_damage_at_a_group_border_and_inside_a_group() -> None:
    log = LogFile().add().add()
    assert scan(log.raw[: log.starts[1]]).verdict is FileVerdict.DAMAGED
    assert scan(log.raw[: log.starts[1] + 30]).verdict is FileVerdict.DAMAGED
    assert scan(log.raw + bytes(5)).verdict is FileVerdict.CLEAN, "only unused zeros are gone"


@pytest.mark.parametrize(
    "changes", [{"frame": 99}, {"chain": 99}, {"offset": 0}, {"log_id": 6}, {"file_frame": 7}]
)
def test_a_mark_that_is_out_of_place_is_never_followed(changes: dict[str, int]) -> None:
    log = LogFile().add().add(RECORD, 0, **changes)
    found = scan(log.padded())
    assert found.verdict in (FileVerdict.DAMAGED, FileVerdict.FOREIGN)
    assert (found.end, found.groups) == (log.starts[1], 1)


def test_a_newer_version_and_an_unknown_frame_are_newer_and_never_torn() -> None:
    assert scan(LogFile().add(version=2).padded()).verdict is FileVerdict.NEWER
    frame = bytearray(RECORD)
    frame[4] = 200
    frame[-8:] = checksum64(bytes(frame[4:-8])).to_bytes(8, "little")
    found = scan(LogFile().add().add(bytes(frame)).padded())
    assert (found.verdict, found.groups) == (FileVerdict.NEWER, 1)


def test_bytes_that_were_never_a_log_are_foreign() -> None:
    assert scan(b"hello" * 20, around=Surroundings()).verdict is FileVerdict.FOREIGN


def test_an_earlier_file_must_reach_exactly_to_the_next_one() -> None:
    log = LogFile().add().add()
    fits = Surroundings(next_number=log.frame, next_chain=log.chain)
    assert scan(log.padded(), around=fits).verdict is FileVerdict.CLEAN
    assert scan(log.raw, around=fits).verdict is FileVerdict.CLEAN
    stray = log.padded()[:-1] + b"\x01"
    assert scan(stray, around=fits).verdict is FileVerdict.CLEAN, "behind the end it is no matter"
    for wrong in (
        Surroundings(next_number=log.frame + 1, next_chain=log.chain),
        Surroundings(next_number=log.frame, next_chain=log.chain + 1),
    ):
        assert scan(log.padded(), around=wrong).verdict is FileVerdict.DAMAGED
    torn = flip(log.padded(), log.starts[1] + 20)
    assert scan(torn, around=fits).verdict is FileVerdict.DAMAGED


def test_an_agreed_loss_is_passed_over_and_the_rest_is_read() -> None:
    log = LogFile().add()
    log.add()
    log.add(durable=len(log.raw))
    broken = flip(log.padded(), log.starts[1] + 20)
    around = Surroundings(skips={log.starts[1]: log.starts[2]}, made_bytes=FILE_BYTES)
    found = scan(broken, around=around)
    assert (found.verdict, found.groups, found.skipped) == (FileVerdict.CLEAN, 2, 1)
    given_up = Surroundings(skips={log.starts[1]: -1}, made_bytes=FILE_BYTES)
    assert scan(broken, around=given_up).abandoned


def test_a_payload_that_looks_like_a_mark_is_not_believed_without_the_logs_id() -> None:
    forged = LogFile(log_id=666)
    forged.raw = bytes(MARK_BYTES + 46)  # where a payload of the first group begins
    forged.add()
    fake_mark = forged.raw[MARK_BYTES + 46 :]
    body = encode_frame(FrameType.APPEND, 1, seq=1, data=fake_mark)
    raw = memoryview(LogFile().add(body).padded())
    assert find_mark(raw, 1, 5) is None


@pytest.mark.parametrize("size", [0, 1, 7, 8, 4096])
def test_zeros_are_told_from_anything_else(size: int) -> None:
    assert is_zero(memoryview(bytes(size)))
    if size:
        assert not is_zero(memoryview(bytes(size - 1) + b"\x01"))
