"""`headwater machine`, `instance`, `event` and the rest, over a server and over a directory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwater.cli.app import app
from tests.machines.conftest import ORDER
from tests.server.running_server import RunningServer


class Shell:
    """Runs verbs against one place."""

    def __init__(self, place: list[str]) -> None:
        self._place = place

    def __call__(self, *words: str, text: str | None = None, place: bool = True) -> str:
        done = self.run(*words, text=text, place=place)
        assert done[0] == 0, done
        return done[1]

    def run(self, *words: str, text: str | None = None, place: bool = True) -> tuple[int, str]:
        rest = self._place if place else []
        result = CliRunner().invoke(app, [*words, *rest], input=text)
        return result.exit_code, result.output


@pytest.fixture
def shell(server: RunningServer) -> Shell:
    return Shell(["--url", f"http://127.0.0.1:{server.port}"])


@pytest.mark.claims(81, 82, 83, 90, 98, 99)
def test_the_verbs_of_the_contract_do_what_they_say(shell: Shell, name: str) -> None:
    assert "defined" in shell("machine", "put", name, "1", "-", text=json.dumps(ORDER))
    assert json.loads(shell("machine", "get", name))["initial"] == "created"
    assert name in shell("machine", "list")
    one = f"{name}-1"
    assert "created" in shell("instance", "create", name, one, "--ctx", '{"amount":2}')
    assert "created -> paid" in shell("event", "apply", one, "PAY", '{"by":"ann"}')
    assert "paid" in shell("instance", "get", one)
    assert "class s1 current" in shell("machine", "draw", name, "--instance", one)
    assert shell("machine", "draw", name, "--svg").startswith("<svg ")
    found = json.loads(shell("instance", "list", "--machine", name, "--json"))
    assert (found["id"], found["state"]) == (one, "paid")
    assert "PAY" in shell("instance", "history", one)
    lines = shell("wal", "read", "-l", "1000", "--json").splitlines()
    entries = [json.loads(line) for line in lines]
    assert "ApplyEvent" in [each["type"] for each in entries]
    offset = str(entries[-1]["offset"])
    last = json.loads(shell("wal", "read", "--from-offset", offset, "-l", "1", "--json"))
    assert last == entries[-1]
    newest = shell("wal", "read", "-l", "2", "--json").splitlines()
    assert [json.loads(line) for line in newest] == entries[-2:]
    stats = json.loads(shell("wal", "stats", "--json"))
    assert f"latest offset {stats['latest_offset']}" in " ".join(shell("wal", "stats").split())
    assert {"current_offset", "segment_count", "total_size_bytes", "oldest_segment"} <= set(stats)
    assert ".snap" in shell("snapshot-instance", one)
    assert ".snap" in shell("compact")
    assert "deleted" in shell("instance", "delete", one)
    code, told = shell.run("instance", "get", one)
    assert (code, "there is no instance" in told) == (2, True)


def test_an_instance_is_migrated_by_a_verb(shell: Shell, name: str, tmp_path: Path) -> None:
    newer = tmp_path / "newer.json"
    newer.write_text('{"states":["new"],"initial":"new","transitions":[]}')
    shell("machine", "put", name, "1", "-", text=json.dumps(ORDER))
    shell("machine", "put", name, "2", str(newer))
    shell("instance", "create", name, f"{name}-1", "--version", "1")
    told = shell("instance", "migrate", f"{name}-1", "2", "--map", "created=new")
    assert "version 2, in state new" in told


def test_the_verbs_work_on_a_directory_that_nobody_has_open(tmp_path: Path) -> None:
    shell = Shell(["--dir", str(tmp_path / "data")])
    shell("machine", "put", "order", "1", "-", text=json.dumps(ORDER))
    shell("instance", "create", "order", "o-1", "--ctx", '{"amount":2}')
    assert "created -> paid" in shell("event", "apply", "o-1", "PAY")
    assert "paid" in shell("instance", "get", "o-1")
    code, told = shell.run("wal", "stats", "--url", "http://127.0.0.1:1")
    assert (code, "not both" in told) == (2, True)


@pytest.mark.parametrize(
    "words",
    [("machine", "list"), ("instance", "get", "o-1"), ("wal", "stats"), ("compact",)],
)
def test_a_directory_that_is_not_there_is_told_and_not_made(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    code, told = Shell(["--dir", str(tmp_path / "tpyo")]).run(*words)
    assert (code, told.count("\n")) == (2, 1)
    assert "there is no directory" in told
    assert not list(tmp_path.iterdir())
    code, told = Shell(["--dir", str(tmp_path)]).run(*words)
    assert (code, "is not a Headwater data directory" in told) == (2, True)
    assert not list(tmp_path.iterdir())


def test_a_watch_by_a_verb_tells_what_happened(shell: Shell, name: str) -> None:
    shell("machine", "put", name, "1", "-", text=json.dumps(ORDER))
    shell("instance", "create", name, f"{name}-1", "--ctx", '{"amount":2}')
    shell("event", "apply", f"{name}-1", "PAY")
    watch = ("instance", "watch", f"{name}-1", "--from-offset", "0", "--idle-ms", "1")
    assert "PAY: created -> paid" in shell(*watch)


def test_mistakes_on_the_command_line_are_one_line(shell: Shell, name: str) -> None:
    assert shell.run("machine", "put", name, "1", "-", text="{")[0] == 2
    assert shell.run("machine", "put", name, "1", "/nowhere.json")[0] == 2
    assert shell.run("instance", "create", name, "--ctx", "[1]")[0] == 2
    assert shell.run("event", "apply", "nobody", "PAY")[0] == 2
    assert shell.run("instance", "migrate", "nobody", "2", "--map", "x")[0] == 2
