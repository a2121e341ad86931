"""`headwater show` for the files of Kafka's log and of state machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.testing import FakeDisk
from tests.unit.cli.conftest import Run
from tests.unit.cli.logs import flip
from tests.unit.recovery.test_kafka_verify import image as kafka_image
from tests.unit.recovery.test_machine_verify import image as machines_image


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    for image in (kafka_image(True), machines_image(True, True)):
        for path, content in FakeDisk(image=image).files().items():
            place = tmp_path / path.relative_to("/data")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
    return tmp_path


def fullest(parts: Path) -> Path:
    segments = (parts / "machines" / "wal").glob("*.wal")
    return max(segments, key=lambda path: len(path.read_bytes().rstrip(b"\0")))


def test_every_file_of_kafka_and_machines_is_shown_as_json(run: Run, parts: Path) -> None:
    kinds = set()
    for path in sorted(parts.rglob("*")):
        if path.is_dir() or path.name in ("index.json", "LOCK") or not path.stat().st_size:
            continue
        outcome = run("show", str(path), "--json")
        assert outcome.code == 0
        head, *pieces = outcome.json_lines()
        kinds.add(head["kind"])
        assert all(piece["state"] == "sound" for piece in pieces), path
        assert pieces, path
        assert run("show", str(path)).code == 0
    assert kinds >= {"Kafka log", "Kafka index", "Kafka checkpoint", "machine log"}
    assert kinds >= {"machine snapshot", "machine history", "CURRENT of machines"}


def test_a_damaged_batch_and_entry_are_shown_in_their_place(run: Run, parts: Path) -> None:
    log = max((parts / "kafka").glob("*.log"), key=lambda path: path.stat().st_size)
    segment = fullest(parts)
    for path in (log, segment):
        whole = run("show", str(path), "--json").json_lines()[1:]
        flip(path, whole[1]["offset"] + 40)
        outcome = run("show", str(path), "--json")
        assert outcome.code == 5
        states = [piece["state"] for piece in outcome.json_lines()[1:]]
        assert [state == "sound" for state in states] == [n != 1 for n in range(len(whole))]
        assert f"at byte {whole[1]['offset']}" in outcome.complaint()
        at = str(whole[2]["offset"])
        assert run("show", str(path), "--json", "--at", at, "--limit", "1").code == 0


def test_the_text_of_an_entry_is_shown_beside_its_place(run: Run, parts: Path) -> None:
    segment = fullest(parts)
    outcome = run("show", str(segment), "--limit", "2")
    assert outcome.code == 0
    assert '"instance_id"' in outcome.out
    assert "there is more" in outcome.out
