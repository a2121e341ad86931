"""`headwater verify`: every kind of file, every kind of fault, and never a byte changed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import headwater
from headwater.engine.read_only import directory_check
from headwater.format.segment import ENTRY_BYTES
from headwater.store.segment import SegmentChangedError
from tests.unit.cli.conftest import Outcome, Run
from tests.unit.cli.databases import SETTINGS, fill, record, segment_file
from tests.unit.cli.logs import everything_in, flip


@pytest.fixture
def full(tmp_path: Path) -> Path:
    fill(tmp_path / "data")
    return tmp_path / "data"


def cut(path: Path, count: int) -> None:
    path.write_bytes(path.read_bytes()[:-count])


def remove_pair(directory: Path, number: int) -> None:
    for kind in ("data", "idx"):
        segment_file(directory, kind, number).unlink()


def lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"more")


def bad(outcome: Outcome) -> list[tuple[str, int | None, str]]:
    return [
        (Path(found["path"]).name, found["offset"], found["what"])
        for found in outcome.json()["findings"]
        if found["bad"]
    ]


def test_a_sound_directory_is_ok_and_nothing_is_changed(run: Run, full: Path) -> None:
    before = everything_in(full)
    outcome = run("verify", full)
    assert outcome.code == 0
    assert outcome.out.startswith(f"ok: {full}: 2 topics, 4 segments, 2 snapshots")
    report = run("verify", full, "--json", "--deep").json()
    assert (report["ok"], report["findings"]) == (True, [])
    assert everything_in(full) == before


Plant = Callable[[Path], object]
DATA, SECOND = "seg-0000000000000001.data", "seg-0000000000000041.data"
IDX = "seg-0000000000000001.idx"

PLANTED: dict[str, tuple[Plant, tuple[str, int | None, str]]] = {
    "payload": (
        lambda d: flip(segment_file(d, "data"), 45),
        (DATA, 0, "seq 1: checksum does not match"),
    ),
    "frame length": (
        lambda d: flip(segment_file(d, "data"), 0),
        (DATA, 0, "seq 1: the lengths in the frame do not add up to its entry"),
    ),
    "seq": (
        lambda d: flip(segment_file(d, "data", 1), 5),
        (SECOND, 0, "seq 41: the frame has another seq"),
    ),
    "state byte": (
        lambda d: flip(segment_file(d, "data"), 55),
        (DATA, 0, "seq 1: the state byte is neither live nor deleted"),
    ),
    "index entry": (
        lambda d: flip(segment_file(d, "idx"), 3 * ENTRY_BYTES + 5),
        (IDX, 3 * ENTRY_BYTES, "the entry is damaged"),
    ),
    "shorter index": (
        lambda d: cut(segment_file(d, "idx"), ENTRY_BYTES),
        ("seg-0000000000000041.idx", None, "seqs 40 to 40 are in no segment"),
    ),
    "missing data": (
        lambda d: segment_file(d, "data").unlink(),
        (DATA, None, "missing: the other file of the pair is there"),
    ),
    "missing segment": (
        lambda d: remove_pair(d, 1),
        ("seg-0000000000000081.idx", None, "seqs 41 to 80 are in no segment"),
    ),
    "missing topic": (
        lambda d: (d / "topics" / "00000002").rename(d / "topics" / "00000099"),
        ("00000002", None, "seqs 1 to 1 are in no segment"),
    ),
    "snapshot": (
        lambda d: flip(max((d / "meta").iterdir()), 60),
        ("snapshot-0000000000000002.bin", 0, "snapshot checksum does not match"),
    ),
    "older snapshot": (
        lambda d: flip(min((d / "meta").iterdir()), 0),
        ("snapshot-0000000000000001.bin", 0, "not a snapshot"),
    ),
    "log": (
        lambda d: flip(d / "wal" / "wal-0000000000000001.log", 300),
        ("wal-0000000000000001.log", 0, "frame at byte 134: checksum does not match"),
    ),
}


@pytest.mark.parametrize("planted", PLANTED, ids=lambda name: name.replace(" ", "-"))
def test_a_planted_fault_is_found_with_its_file_and_offset(
    run: Run, full: Path, planted: str
) -> None:
    plant, (name, offset, what) = PLANTED[planted]
    plant(full)
    before = everything_in(full)
    outcome = run("verify", full, "--json")
    assert outcome.code == 5
    found = bad(outcome)
    assert any(f[0] == name and f[1] == offset and f[2].startswith(what) for f in found), found
    shown = run("verify", full)
    assert shown.code == 5
    assert "BAD " in shown.out
    assert "NOT SOUND" in shown.out
    assert "nothing was changed" in shown.complaint()
    assert everything_in(full) == before


def test_a_truncated_data_file_names_every_record_that_is_gone(run: Run, full: Path) -> None:
    cut(segment_file(full, "data"), 100)
    found = [what for name, _, what in bad(run("verify", full, "--json")) if name == DATA]
    assert found[-1] == "seq 40: the frame is not in the file"


def test_unknown_names_and_unfinished_work_are_notes_and_no_damage(run: Run, full: Path) -> None:
    for name in ("letter", "meta/letter", "topics/letter", "topics/00000001/letter"):
        (full / name).write_text("x")
    (full / "topics" / "0000000F").mkdir()
    (full / "topics" / "00000010.deleted").mkdir()
    (full / "meta" / "snapshot-0000000000000003.bin.tmp").write_text("half")
    (full / "topics" / "00000001" / "seg-0000000000000001.data.new").write_text("half")
    lengthen(segment_file(full, "data", 2))
    outcome = run("verify", full)
    assert outcome.code == 0, outcome.out
    notes = [line for line in outcome.out.splitlines() if line.startswith("note")]
    assert len(notes) == 9
    assert sum("not a name this software gives" in line for line in notes) == 4


def test_many_faults_of_one_file_are_counted_and_not_all_listed(run: Run, full: Path) -> None:
    path = segment_file(full, "idx")
    path.write_bytes(bytes(byte ^ 0xFF for byte in path.read_bytes()))
    found = [f for f in bad(run("verify", full, "--json")) if f[0] == IDX]
    assert len(found) == 21
    assert "more of this kind" in found[-1][2]


def test_other_places_are_refused_in_one_line(run: Run, tmp_path: Path) -> None:
    assert "is not a Headwater data directory" in run("verify", tmp_path).complaint()
    assert "there is no directory" in run("verify", tmp_path / "no").complaint()
    assert run("verify", tmp_path).code == 2


def test_a_directory_that_is_being_written_is_not_called_damaged(run: Run, tmp_path: Path) -> None:
    data = tmp_path / "data"
    stop = threading.Event()
    with headwater.open(data, settings=SETTINGS) as db:
        db.append("orders", record(1))

        def write() -> None:
            seq = 1
            while not stop.is_set():
                seq += 20
                db.append("orders", [record(n) for n in range(seq, seq + 20)])
                if seq % 100 == 1:
                    db.delete("orders", match="third", before_seq=seq)
                    db.delete("orders", before_seq=max(seq - 400, 0))
                    db.checkpoint()

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(8):
                outcome = run("verify", data)
                assert outcome.code == 0, outcome.out + outcome.err
        finally:
            stop.set()
            writer.join()


def test_an_owner_who_never_pauses_is_a_note_and_no_damage(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    with headwater.open(data, settings=SETTINGS) as db:
        db.append("orders", record(1))

    def always_changed(*_given: object) -> None:
        raise SegmentChangedError("a snapshot was written while the log was being read")

    monkeypatch.setattr(directory_check, "DirectoryView", always_changed)
    outcome = run("verify", data)
    assert outcome.code == 0, outcome.out + outcome.err
    assert "could not be compared with the log" in " ".join(outcome.out.split())
