"""Whatever is typed, the answer is one clear line, an exit code, and an unchanged disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.disk import PosixDisk
from headwater.format.frame import FrameType, encode_frame
from headwater.format.mark import COMMIT_MARK
from tests.unit.cli.conftest import Run
from tests.unit.cli.logs import everything_in

DIRECTORY_COMMANDS = [
    ("wal", "verify"),
    ("wal", "dump"),
    ("wal", "repair"),
    ("wal", "repair", "--apply"),
    ("repair",),
]
every_command = pytest.mark.parametrize("command", DIRECTORY_COMMANDS, ids=" ".join)


@every_command
def test_a_missing_directory_is_named(run: Run, tmp_path: Path, command: tuple[str, ...]) -> None:
    outcome = run(*command, tmp_path / "nothing")
    assert outcome.code == 2
    assert f"there is no directory {tmp_path}/nothing; check the path" in outcome.complaint()
    assert everything_in(tmp_path) == {}


@every_command
def test_a_file_in_place_of_a_directory_is_refused(
    run: Run, tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "file").write_text("x")
    outcome = run(*command, tmp_path / "file")
    assert outcome.code == 2
    assert "is not a directory" in outcome.complaint()


@every_command
def test_a_directory_of_somebody_else_is_refused_and_left_alone(
    run: Run, tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "holiday.jpg").write_bytes(b"sun")
    before = everything_in(tmp_path)
    outcome = run(*command, tmp_path)
    assert outcome.code == 2
    assert "is not a Headwater data directory: there is no wal/ in it" in outcome.complaint()
    assert everything_in(tmp_path) == before


@every_command
def test_a_directory_that_may_not_be_read_says_who_can_help(
    run: Run, data: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may read everything, so the refusal is made up."""

    def refuse(_: PosixDisk, path: Path) -> list[str]:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(PosixDisk, "list_directory", refuse)
    outcome = run(*command, data)
    assert outcome.code == 5
    assert f"'permission denied' in {data}; give this user access to it" in outcome.complaint()


@every_command
def test_a_log_of_a_newer_version_is_refused_and_left_alone(
    run: Run, data: Path, wal_file: Path, command: tuple[str, ...]
) -> None:
    body = (99).to_bytes(2, "little") + bytes(COMMIT_MARK.size)
    newer = encode_frame(FrameType.COMMIT_MARK, 0, ts=1, data=body)
    contents = bytearray(wal_file.read_bytes())
    contents[: len(newer)] = newer
    wal_file.write_bytes(contents)
    before = everything_in(data)
    outcome = run(*command, data)
    assert outcome.code == 5
    complaint = outcome.complaint()
    assert "version" in outcome.out + complaint
    if command != ("wal", "dump"):
        assert "use the version of Headwater that wrote it" in complaint
    assert everything_in(data) == before
    shown = run("show", wal_file)
    assert shown.code == 5
    assert f"format version 99, this software knows 1 in {wal_file} at byte 0" in shown.complaint()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["wal", "verify"], "missing argument 'DIR'; see `headwater wal verify --help`"),
        (["wal", "verfy", "x"], "Did you mean 'verify'?"),
        (["wal", "verify", "x", "--quick"], "no such option: --quick"),
        (["wal", "dump", "x", "--limit", "many"], "invalid value for '--limit'"),
        (["wal", "dump", "x", "--limit", "0"], "invalid value for '--limit'"),
        (["show"], "missing argument 'FILE'"),
        (["launch"], "no such command 'launch'; see `headwater --help`"),
    ],
    ids=" ".join,
)
def test_a_wrong_word_is_answered_in_one_line(run: Run, words: list[str], says: str) -> None:
    outcome = run(*words)
    assert outcome.code == 2
    assert says in outcome.complaint()
    assert outcome.out == ""


@pytest.mark.parametrize("words", [[], ["wal"]], ids=["headwater", "wal"])
def test_a_forgotten_verb_shows_the_verbs_and_fails(run: Run, words: list[str]) -> None:
    outcome = run(*words)
    assert outcome.code == 2
    assert "Usage: headwater" in outcome.out


@pytest.mark.parametrize(
    "words", [[], ["wal"], ["wal", "verify"], ["wal", "dump"], ["wal", "repair"], ["show"]], ids=str
)
def test_help_is_there_on_every_level(run: Run, words: list[str]) -> None:
    outcome = run(*words, "--help")
    assert outcome.code == 0
    assert " ".join(["Usage: headwater", *words]) in outcome.out
