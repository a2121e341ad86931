"""The verbs that talk to a server, through the real script."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwater.cli.app import app
from tests.e2e.cli.conftest import SCRIPT, Shell
from tests.rig.server_process import ServerProcess

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not SCRIPT.exists(), reason="the package is not installed as a script"),
]


def test_records_go_in_and_come_out_as_arguments_lines_and_files(
    shell: Shell, tmp_path: Path
) -> None:
    assert shell.good("write", "in", '{"a": 1}', "2") == "wrote 2 records to in, seqs 1 to 2\n"
    assert shell.good("write", "in", stdin='3\n\n"four"\n') == (
        "wrote 2 records to in, seqs 3 to 4\n"
    )
    (tmp_path / "lines").write_bytes(b'5\r\n"six"')
    out = shell.good("write", "in", "--file", "lines", "--batch", "1", "--tag", "t", "--json")
    assert json.loads(out) | {"seconds": 0} == {
        "topic": "in",
        "count": 2,
        "first_seq": 5,
        "last_seq": 6,
        "requests": 2,
        "seconds": 0,
    }
    found = shell("read", "in", "--json").json_lines()
    assert [record["data"] for record in found] == [{"a": 1}, 2, 3, "four", 5, "six"]
    assert [record.get("$tag") for record in found] == [None, None, None, None, "t", "t"]
    assert [r["$seq"] for r in shell("read", "in", "--from", "4", "--json").json_lines()] == [5, 6]
    assert len(shell.good("read", "in", "--limit", "2").splitlines()) == 2
    tagged = shell("read", "in", "--match", "t*", "--json").json_lines()
    assert [r["data"] for r in tagged] == [5, "six"]
    last = shell("tail", "in", "-n", "1", "--json").json_lines()
    assert [r["$seq"] for r in last] == [6]


def test_a_payload_cannot_move_the_cursor_and_numbers_are_not_rounded(shell: Shell) -> None:
    payload = '{"big": 12345678901234567890123, "t": "\x7f\u009b é \U0001f600"}\n'
    shell.good("write", "odd", "--file", "-", stdin=payload)
    shell.good("write", "odd", "--text", "\x1b[31mred\x1b[0m", "--node", "\x1b]0;x")
    for words in (["read", "odd"], ["read", "odd", "--json"], ["tail", "odd"]):
        out = shell.good(*words)
        assert "12345678901234567890123" in out
        assert all(line.isprintable() for line in out.splitlines())
        assert len(out.splitlines()) == 2
    first, second = shell("read", "odd", "--json").json_lines()
    assert first["data"]["t"] == "\x7f\u009b é \U0001f600"
    assert (second["data"], second["$node"]) == ("\x1b[31mred\x1b[0m", "\x1b]0;x")


def test_a_bad_line_stops_the_writing_and_tells_what_was_written(shell: Shell) -> None:
    done = shell("write", "bad", stdin="1\n2\nthree\n4\n")
    assert done.code == 2
    first, second = done.err.splitlines()
    assert first == "headwater: wrote 2 records to bad, seqs 1 to 2 before this:"
    assert second.startswith("headwater: line 3 is not JSON (")
    assert len(shell("read", "bad", "--json").json_lines()) == 2


def test_topics_are_made_listed_shown_and_dropped(shell: Shell) -> None:
    made = shell.good("topic", "create", "t.a", "--cap-records", "2", "--set", "dedupe_node=false")
    assert made == "t.a: a log with cap_records 2, dedupe_node false\n"
    shell.good("write", "t.a", "1", "2", "3")
    (listed,) = shell("topic", "list", "--prefix", "t.", "--json").json_lines()
    assert (listed["topic"], listed["count"], listed["head_seq"]) == ("t.a", 2, 3)
    heading, row = shell.good("topic", "list", "--prefix", "t.").splitlines()
    assert heading.split()[:3] == ["topic", "type", "durability"]
    assert row.split()[:4] == ["t.a", "log", "fsync", "2"]
    assert shell("topic", "show", "t.a", "--json").json()["config"]["cap_records"] == 2
    assert "cap_records" in shell.good("topic", "show", "t.a")
    gap = shell("read", "t.a", "--json").json_lines()[0]
    assert (gap["tombstone"]["gap_from"], gap["tombstone"]["reason"]) == (1, "cap")
    assert shell.good("read", "t.a").startswith("-- 1 to 1 are gone (cap")
    assert shell.good("topic", "delete", "t.a") == "t.a: dropped\n"
    assert shell("topic", "delete", "t.a", "--json").json() == {"topic": "t.a", "deleted": False}
    assert shell.good("topic", "list", "--prefix", "t.") == "no topics that begin with t.\n"


def test_records_are_deleted_by_seq_and_by_tag(shell: Shell) -> None:
    shell.good("write", "del", "1", "2", "--tag", "x")
    shell.good("write", "del", "3", "4")
    assert shell.good("delete", "del", "--match", "x").startswith(
        "deleted 2 records of del; 2 left"
    )
    assert shell("delete", "del", "--before", "4", "--json").json()["deleted"] == 1
    done = shell("delete", "del")
    assert (done.code, done.out) == (2, "")
    assert done.err == "headwater: say which records: --before SEQ, --match TAG, or both\n"


@pytest.mark.parametrize(
    ("words", "code", "start"),
    [
        (["read", "nowhere"], 2, "there is no topic 'nowhere'"),
        (["topic", "show", "bad name"], 2, "topic must be 1 to 255 letters"),
        (["topic", "create", "x", "--set", "colour=1"], 2, "there is no setting 'colour'"),
        (["write", "x", "hello"], 2, "record 1 is not JSON ("),
        (["write", "x", "1", "--file", "-"], 2, "give records or --file, not both"),
        (["read", "x", "--url", "ftp://x"], 2, "the address of a server is like"),
        (["read", "x", "--context", "away"], 2, "there is no context 'away'; saved are: "),
        (["watch", "nowhere"], 2, "there is no topic 'nowhere'"),
        (["bench", "--seconds", "1000"], 2, "invalid value for '--seconds'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line_and_an_exit_code(
    shared: ServerProcess, words: list[str], code: int, start: str
) -> None:
    """In process: a dozen interpreters take a while to start."""
    done = CliRunner().invoke(app, words, env={"HEADWATER_URL": shared.url})
    assert (done.exit_code, done.stdout) == (code, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"headwater: {start}"), line


def test_following_shows_each_record_at_once_and_control_c_ends_it_quietly(
    shell: Shell, shared: ServerProcess
) -> None:
    shell.good("write", "live", "1")
    with shell.begin("tail", "live", "-f", "--json") as tail:
        assert tail.stdout is not None
        assert tail.stderr is not None
        assert json.loads(tail.stdout.readline())["data"] == 1
        shell.good("write", "live", "2")
        assert json.loads(tail.stdout.readline())["data"] == 2
        shared.restart()
        shell.good("write", "live", "3")
        assert json.loads(tail.stdout.readline())["data"] == 3
        tail.send_signal(signal.SIGINT)
        assert tail.wait(timeout=60) == 130
        assert tail.stderr.read().strip() == ""


def test_watching_several_topics_names_them_and_ends_when_they_are_gone(shell: Shell) -> None:
    shell.good("write", "w.a", "1")
    shell.good("write", "w.b", "2")
    with shell.begin("watch", "w.a", "w.b", "--all", "--json") as watch:
        assert watch.stdout is not None
        assert watch.stderr is not None
        found = [json.loads(watch.stdout.readline()) for _ in range(2)]
        assert sorted((one["topic"], one["data"]) for one in found) == [("w.a", 1), ("w.b", 2)]
        for topic in ("w.a", "w.b"):
            shell.good("topic", "delete", topic)
            assert json.loads(watch.stdout.readline()) == {"topic": topic, "deleted": True}
        assert watch.stderr.read() == (
            "headwater: nothing is left to watch: the topics were dropped\n"
        )
        assert watch.wait(timeout=60) == 0


def test_stats_tell_what_a_server_holds(shell: Shell) -> None:
    shell.good("write", "counted", "1", "2")
    out = shell.good("stats")
    assert "records written" in out
    assert "counted" in out
    metrics = shell("stats", "--json").json()
    assert metrics["state"] == "ok"
    assert metrics["metrics"]["headwater_topic_records_live{topic=counted}"] == 2


def test_the_bench_is_bounded_and_leaves_nothing_behind(shell: Shell) -> None:
    found = shell("bench", "--seconds", "0.3", "--connections", "2", "--json").json()
    assert found["write"]["requests"] > 0
    assert found["read"]["records_per_s"] > 0
    assert found["write"]["p50_ms"] <= found["write"]["p99_ms"] <= found["write"]["max_ms"]
    assert "p99/ms" in shell.good("bench", "--seconds", "0.2", "--batch", "50")
    assert shell("topic", "list", "--prefix", "headwater-bench", "--json").json_lines() == []


def test_contexts_are_saved_for_the_user_only_and_never_show_their_token(
    shell: Shell, shared: ServerProcess, tmp_path: Path
) -> None:
    del shell.environment["HEADWATER_URL"]
    assert shell.good("context", "list").startswith("no contexts are saved")
    shell.good("context", "add", "here", shared.url, "--token", "-", stdin="secret-secret\n")
    shell.good("context", "add", "away", "http://127.0.0.1:9")
    file = tmp_path / "config/headwater/contexts.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    listed = shell.good("context", "list") + shell.good("context", "list", "--json")
    assert "secret-secret" not in listed
    assert shell("context", "list", "--json").json()["current"] == "here"
    shell.good("topic", "list")
    shell.good("context", "use", "away")
    shell.good("topic", "list", "--context", "here")
    shell.good("context", "remove", "away")
    assert shell("context", "use", "away").err == (
        "headwater: there is no context 'away'; saved are: here\n"
    )


@pytest.mark.parametrize("kind", ["bash", "zsh"])
def test_the_shell_completes_verbs_and_options(shell: Shell, kind: str) -> None:
    shell.environment |= {
        "_HEADWATER_COMPLETE": f"complete_{kind}",
        "COMP_WORDS": "headwater top",
        "COMP_CWORD": "1",
        "_TYPER_COMPLETE_ARGS": "headwater top",
    }
    assert "topic" in shell().out


@pytest.mark.parametrize("kind", ["bash", "zsh", "fish"])
def test_the_completion_script_of_a_shell_is_printed(shell: Shell, kind: str) -> None:
    script = shell.good("completion", kind)
    assert "_HEADWATER_COMPLETE" in script
    assert f"complete_{kind}" in script
    if shutil.which(kind):
        subprocess.run([kind, "-n", "-c", script], check=True)


def test_completion_for_an_unknown_shell_names_those_there_are(shell: Shell) -> None:
    refused = shell("completion", "csh")
    assert refused.code == 2
    assert "bash" in refused.err
