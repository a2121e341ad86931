"""`headwater verify` and the cold tier: its bytes are read, and one that is away is no damage."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import headwater
from headwater.config.store import SegmentSettings
from headwater.disk import PosixDisk
from headwater.format.segment import SegmentPart
from headwater.store.cold_tier import open_cold_tier, without_credentials
from tests.rig.s3_server import make_bucket, s3_server, url_of
from tests.unit.cli.conftest import Outcome, Run
from tests.unit.cli.databases import SETTINGS, record
from tests.unit.cli.logs import everything_in, flip

KEPT_HOT = SegmentSettings(segment_max_events=40, hot_retain_segments=1)


def fill_cold(directory: Path, cold: Path | str) -> None:
    """Topics 1 and 2: four segments each, the first two of them in the cold tier."""
    settings = replace(SETTINGS, segments=KEPT_HOT, cold_url=str(cold))
    with headwater.open(directory, settings=settings) as db:
        for topic in ("orders", "others"):
            db.append(topic, [record(seq) for seq in range(1, 141)])
        db.checkpoint()
        db.engine._housekeeping.round()
        db.delete("orders", match="third")
        db.checkpoint()


@pytest.fixture
def tiers(tmp_path: Path) -> tuple[Path, Path]:
    directory, cold = tmp_path / "data", tmp_path / "cold"
    fill_cold(directory, cold)
    assert len(list((cold / "topics" / "00000001").glob("*.data"))) == 2
    return directory, cold


def bad(outcome: Outcome) -> list[tuple[str, str]]:
    found = outcome.json()["findings"]
    return [(Path(each["path"]).name, each["what"]) for each in found if each["bad"]]


def unchecked(outcome: Outcome) -> list[str]:
    return [each["what"] for each in outcome.json()["unchecked"]]


def test_a_sound_cold_tier_is_found_by_what_the_directory_remembers(
    run: Run, tiers: tuple[Path, Path]
) -> None:
    directory, cold = tiers
    before = everything_in(directory), everything_in(cold)
    for named in ([], ["--cold", str(cold)]):
        outcome = run("verify", directory, *named, "--json")
        assert (outcome.code, bad(outcome), unchecked(outcome)) == (0, [], [])
        assert outcome.json()["findings"] == []
    assert (everything_in(directory), everything_in(cold)) == before


def at(cold: Path, name: str, topic: int = 1) -> Path:
    return cold / "topics" / f"{topic:08X}" / name


FIRST, SECOND = "seg-0000000000000001", "seg-0000000000000041"
Plant = Callable[[Path, Path], object]
PLANTED: dict[str, tuple[Plant, str, str]] = {
    "a flipped payload byte": (
        lambda _, cold: flip(at(cold, f"{FIRST}.data"), 100),
        f"{FIRST}.data",
        "checksum does not match",
    ),
    "a flipped byte of the cold index": (
        lambda _, cold: flip(at(cold, f"{FIRST}.idx"), 5),
        f"{FIRST}.idx",
        "the entry is damaged",
    ),
    "no object": (
        lambda _, cold: at(cold, f"{SECOND}.data").unlink(),
        f"{SECOND}.data",
        "missing",
    ),
    "half an object": (
        lambda _, cold: at(cold, f"{FIRST}.data").write_bytes(
            at(cold, f"{FIRST}.data").read_bytes()[:500]
        ),
        f"{FIRST}.data",
        "has 500 bytes",
    ),
    "no index at home": (
        lambda directory, _: at(directory, f"{SECOND}.cold").unlink(),
        f"{SECOND}.cold",
        "missing",
    ),
    "an object of another range": (
        lambda _, cold: shutil.copy(at(cold, f"{FIRST}.data"), at(cold, f"{SECOND}.data")),
        f"{SECOND}.data",
        "the data of the seqs from 1 on, not from 41",
    ),
}


@pytest.mark.parametrize("kind", PLANTED)
def test_damage_in_the_cold_tier_is_bad_and_told_for_what_it_is(
    run: Run, tiers: tuple[Path, Path], kind: str
) -> None:
    plant, name, what = PLANTED[kind]
    plant(*tiers)
    outcome = run("verify", tiers[0], "--json")
    assert outcome.code == 5
    assert any(found[0] == name and what in found[1] for found in bad(outcome)), bad(outcome)


def test_a_tier_that_is_away_is_told_once_and_is_no_damage(
    run: Run, tiers: tuple[Path, Path]
) -> None:
    directory, cold = tiers
    cold.rename(cold.with_name("elsewhere"))
    for mounted in (False, True):
        if mounted:
            cold.mkdir()  # where a volume should be
        outcome = run("verify", directory, "--json")
        assert (outcome.code, bad(outcome), outcome.json()["ok"]) == (3, [], True)
        (what,) = unchecked(outcome)
        assert "stay unchecked" in what
    assert list(cold.iterdir()) == []
    assert "unchecked" in run("verify", directory).out
    assert run("verify", directory, "--cold", cold.with_name("elsewhere")).code == 0


def test_a_directory_that_remembers_no_tier_says_how_to_name_it(
    run: Run, tiers: tuple[Path, Path]
) -> None:
    directory, cold = tiers
    (directory / "meta" / "cold-tier.json").unlink()
    outcome = run("verify", directory, "--json")
    assert outcome.code == 3
    assert set(unchecked(outcome)) == {
        "its frames were not checked: name the cold tier with --cold"
    }
    assert len(unchecked(outcome)) == 4
    assert run("verify", directory, "--cold", cold, "--json").code == 0


def test_credentials_of_an_address_are_never_written_down() -> None:
    place = (
        "s3://key:secret@bucket/prefix?region=eu-west-1&secret_key=hidden&access_key=hidden"
        "&endpoint_override=localhost%3A9000&session_token=hidden"
    )
    kept = without_credentials(place)
    assert kept == "s3://bucket/prefix?region=eu-west-1&endpoint_override=localhost%3A9000"
    assert without_credentials("/mnt/cold?x") == "/mnt/cold?x"


MISSING = [name for name in ("moto", "flask", "pyarrow") if importlib.util.find_spec(name) is None]


@pytest.mark.e2e
@pytest.mark.skipif(bool(MISSING), reason=f"needs {' and '.join(MISSING)} for an S3 server")
def test_an_object_store_is_read_with_keys_from_the_environment(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "data"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with s3_server() as server:
        make_bucket(server, "bucket")
        place = url_of(server, "bucket")
        fill_cold(directory, place)
        written_down = (directory / "meta" / "cold-tier.json").read_text()
        assert "secret" not in written_down
        assert "key:" not in written_down
        outcome = run("verify", directory, "--json")
        assert (outcome.code, bad(outcome), unchecked(outcome)) == (0, [], [])
        store = open_cold_tier(PosixDisk(), place).topic(1)
        parts = [store.read_range(1, part, 0, store.len(1, part)) for part in SegmentPart]
        store.put(41, *parts)
        outcome = run("verify", directory, "--json")
        assert outcome.code == 5
        assert (f"{SECOND}.data", "this is the data of the seqs from 1 on, not from 41") in bad(
            outcome
        )
        outcome = run("verify", directory, "--cold", url_of(server, "no-such-bucket"), "--json")
        assert (outcome.code, bad(outcome)) == (3, [])
        assert "secret" not in outcome.out
