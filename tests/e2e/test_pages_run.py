"""What docs/http.md, docs/client.md and docs/cli.md show is what happens."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.config.keys import KEYS
from tests.rig.server_process import ServerProcess, clean_environment
from tests.rig.setting_defaults import default_of

pytestmark = pytest.mark.e2e

DOCS = Path(__file__).parents[2] / "docs"
SCRIPTS = Path(sys.executable).parent
SHOWN_PORT = "4000"
CHANGES = frozenset(("performance", "$ts"))


def blocks(page: str) -> list[tuple[str, str]]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(r"^```(\w+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data") as server:
        yield server


def run(words: list[str], server: ServerProcess, directory: Path) -> str:
    path = f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        words,
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=clean_environment(PATH=path, HEADWATER_URL=server.url, XDG_CONFIG_HOME="config"),
    )
    assert done.returncode == 0, f"{words[-1]}\n{done.stdout}{done.stderr}"
    return done.stdout


def check(shown: Any, found: Any, where: str) -> None:
    """Everything that is shown is there. "..." stands for anything."""
    if shown == "...":
        return
    if isinstance(shown, dict):
        for name, value in shown.items():
            assert name in found, f"{where}: no {name} in {found}"
            if name not in CHANGES:
                check(value, found[name], f"{where}.{name}")
    elif isinstance(shown, list):
        assert len(shown) == len(found), where
        for number, (one, other) in enumerate(zip(shown, found, strict=True)):
            check(one, other, f"{where}[{number}]")
    else:
        assert shown == found, where


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")
def test_the_curl_examples_answer_what_the_page_shows(
    server: ServerProcess, tmp_path: Path
) -> None:
    answer, asked = "", ""
    pairs = 0
    for language, text in blocks("http.md"):
        if language == "bash":
            asked = text
            script = text.replace(f"localhost:{SHOWN_PORT}", f"127.0.0.1:{server.port}")
            answer = run(["bash", "-euc", script], server, tmp_path)
            if "curl -sN" in text:
                assert "event: record\n" in answer
                assert "event: caught-up\n" in answer
        elif language == "json":
            check(json.loads(text), json.loads(answer), asked)
            pairs += 1
    assert pairs >= 8
    assert "headwater_topics 1.0" in answer


def test_the_examples_of_the_client_run(server: ServerProcess, tmp_path: Path) -> None:
    said = [
        run([sys.executable, "-c", text.replace(SHOWN_PORT, str(server.port))], server, tmp_path)
        for language, text in blocks("client.md")
        if language == "python"
    ]
    assert len(said) == 5
    assert said[0].splitlines()[0] == "[{'total': 0}, {'total': 1}, {'total': 2}] True"
    assert said[1].splitlines()[-1].startswith("10 ")
    assert said[3].splitlines() == ["ann", "bob", "WorkDone(done=2, failed=0, lost=0)"]
    assert "head_conflict" in said[4]


def test_the_worker_on_the_page_of_queues_works(server: ServerProcess, tmp_path: Path) -> None:
    (text,) = [text for language, text in blocks("queues.md") if language == "python"]
    said = run([sys.executable, "-c", text.replace(SHOWN_PORT, str(server.port))], server, tmp_path)
    assert said.splitlines() == [
        *(f"sending to {name} for the 1 time" for name in ("ann", "bob", "cy")),
        "WorkDone(done=3, failed=0, lost=0)",
    ]


def test_the_examples_of_the_command_line_run(server: ServerProcess, tmp_path: Path) -> None:
    (script,) = [text for language, text in blocks("cli.md") if language == "bash"]
    said = run(["bash", "-euc", script], server, tmp_path).splitlines()
    assert said[0] == "wrote 2 records to orders, seqs 1 to 2"
    assert said[1].startswith("wrote 1,000 records to numbers, seqs 1 to 1000 in ")


def test_the_page_lists_every_setting_with_its_default() -> None:
    text = (DOCS / "cli.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| (\w+) \| (.*?) ?\| .* \|$", text, re.MULTILINE))
    for key in KEYS:
        default = default_of(key)
        shown = "" if default in (None, ()) else str(default)
        if isinstance(default, bool):
            shown = shown.lower()
        assert listed[key.name] == shown, key.name
        assert f" | {key.meaning} |" in text
