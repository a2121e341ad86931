"""`headwater queue` through the real script."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwater.cli.app import app
from tests.e2e.cli.conftest import SCRIPT, Shell

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not SCRIPT.exists(), reason="the package is not installed as a script"),
]


def make(shell: Shell, topic: str, *records: str, **settings: str) -> None:
    more = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    shell.good("topic", "create", topic, "--type", "queue", *more)
    if records:
        shell.good("write", topic, *records)


def test_jobs_are_claimed_settled_and_counted(shell: Shell) -> None:
    make(shell, "cq.a", '{"to": "ann"}', "2", "3")
    line = shell.good("queue", "claim", "cq.a")
    assert line.startswith("lease ")
    assert '{"to": "ann"}' in line
    second, third = shell("queue", "claim", "cq.a", "-n", "5", "--json").json_lines()
    assert (second["$seq"], second["data"], second["deliveries"]) == (2, 2, 1)
    assert third["$seq"] == 3
    assert shell.good("queue", "ack", "cq.a", "1") == "acked 1\n"
    lease = str(second["lease_id"])
    acked = shell("queue", "ack", "cq.a", "2", "--lease-id", lease, "--json").json()
    assert acked == {"acked": [2], "skipped": [], "ready": 0, "in_flight": 1}
    assert shell.good("queue", "extend", "cq.a", "3", "--lease-ms", "90000") == "extended 3\n"
    assert shell.good("queue", "nack", "cq.a", "3", "--delay-ms", "60000") == "nacked 3\n"
    stats = shell("queue", "stats", "cq.a", "--json").json()
    assert stats == {
        "topic": "cq.a",
        "ready": 0,
        "in_flight": 0,
        "delayed": 1,
        "blocked": 0,
        "dead_lettered": 0,
        "paused": False,
    }
    assert "delayed" in shell.good("queue", "stats", "cq.a")
    assert shell.good("queue", "claim", "cq.a") == "cq.a: nothing to do\n"


def test_what_cannot_be_done_has_a_reason_and_an_exit_code(shell: Shell) -> None:
    make(shell, "cq.b", "1")
    shell.good("write", "cq.log", "1")
    refused = shell("queue", "ack", "cq.b", "1", "--json")
    assert refused.code == 2
    assert json.loads(refused.out)["skipped"] == [1]
    assert "not acked: 1" in refused.err
    for words in (["claim", "cq.log"], ["stats", "cq.log"], ["pause", "cq.log"],
                  ["work", "cq.log", "true"], ["claim", "cq.none"], ["pause", "cq.none"],
                  ["work", "cq.none", "true"], ["work", "cq.b", "no-such-command-here"],
                  ["claim", "cq.b", "-n", "0"]):  # fmt: skip
        done = CliRunner(env=shell.environment).invoke(app, ["queue", *words])
        assert (done.exit_code, done.stdout) == (2, ""), (words, done.output)
        assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "cq.none" not in shell.good("topic", "list", "--prefix", "cq.")


def test_dead_letters_are_given_back_by_seq_and_all_at_once(shell: Shell) -> None:
    make(shell, "cq.dying", "1", "2", "3", max_deliveries="1", dead_letter="cq.dead")
    shell.good("queue", "claim", "cq.dying", "-n", "3")
    shell.good("queue", "nack", "cq.dying", "1", "2", "3")
    shell.good("queue", "claim", "cq.dying")
    assert shell.good("queue", "requeue", "cq.dead", "2") == "cq.dead: 1 given back\n"
    assert shell("queue", "requeue", "cq.dead", "2").code == 2
    assert shell("queue", "requeue", "cq.dead").code == 2
    done = shell("queue", "requeue", "cq.dead", "--all", "--json").json()
    assert done == {"requeued": [1, 3], "skipped": []}
    assert shell("queue", "stats", "cq.dying", "--json").json()["ready"] == 3


def test_a_paused_queue_gives_nothing(shell: Shell) -> None:
    make(shell, "cq.c", "1")
    assert shell.good("queue", "pause", "cq.c") == "cq.c: paused\n"
    assert shell.good("queue", "claim", "cq.c") == "cq.c: nothing to do\n"
    assert shell("queue", "stats", "cq.c", "--json").json()["paused"] is True
    assert shell("queue", "resume", "cq.c", "--json").json() == {"topic": "cq.c", "paused": False}
    assert len(shell("queue", "claim", "cq.c", "--json").json_lines()) == 1


def test_work_runs_a_command_for_each_job_and_its_exit_code_decides(
    shell: Shell, tmp_path: Path
) -> None:
    make(shell, "cq.d", '{"n": 1}', '"bad"', "3")
    script = tmp_path / "job"
    script.write_text(
        "#!/bin/sh\nread -r data\n"
        'echo "$HEADWATER_JOB_SEQ $HEADWATER_JOB_DELIVERIES $data" >> seen\n'
        '[ "$data" != \'"bad"\' ] || [ "$HEADWATER_JOB_DELIVERIES" = 2 ]\n',
        encoding="utf-8",
    )
    script.chmod(0o755)
    words = ("queue", "work", "cq.d", "--retry-ms", "1", "--idle-ms", "300")
    done = shell(*words, "--json", "--", "./job")
    assert done.code == 0, done
    lines = done.json_lines()
    assert sorted((line["seq"], line["result"]) for line in lines) == [
        (1, "done"), (2, "done"), (2, "failed"), (3, "done"),
    ]  # fmt: skip
    assert [line["exit_code"] for line in lines if line["result"] == "failed"] == [1]
    seen = (tmp_path / "seen").read_text(encoding="utf-8").splitlines()
    assert sorted(seen) == ['1 1 {"n": 1}', '2 1 "bad"', '2 2 "bad"', "3 1 3"]
    assert shell("topic", "show", "cq.d", "--json").json()["count"] == 0
    assert shell.good(*words, "true") == "0 done, 0 failed\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_is_asked_to_stop_finishes_its_job(
    shell: Shell, tmp_path: Path, number: int
) -> None:
    topic = f"cq.e{number}"
    make(shell, topic, "1", "2", "3")
    os.mkfifo(tmp_path / "gate")
    working = shell.begin(
        "queue", "work", topic, "--", "sh", "-c", "echo begun; read -r line < gate"
    )
    assert working.stdout is not None
    assert working.stdout.readline() == "begun\n"
    working.send_signal(number)
    (tmp_path / "gate").write_text("go\n", encoding="utf-8")
    out, err = working.communicate(timeout=60)
    assert (working.returncode, out, err) == (0, "1 done, 0 failed\n", "")
    stats = shell("queue", "stats", topic, "--json").json()
    assert (stats["ready"], stats["in_flight"]) == (2, 0)
