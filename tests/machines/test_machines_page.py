"""What docs/machines.md shows is what happens."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.server.rcpx.operations import OPERATIONS
from tests.rig.server_process import ServerProcess, clean_environment

PAGE = Path(__file__).parents[2] / "docs" / "machines.md"
SCRIPTS = Path(sys.executable).parent


def blocks() -> list[tuple[str, str]]:
    text = PAGE.read_text(encoding="utf-8")
    return re.findall(r"^```(python|bash)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.mark.e2e
@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")
def test_everything_on_the_page_runs_in_its_order(tmp_path: Path) -> None:
    ports = tmp_path / "ports.json"
    flags = ("--rcpx-port", "0", "--port-file", str(ports))
    with ServerProcess(tmp_path / "data", *flags) as server:
        rcpx = json.loads(ports.read_text(encoding="utf-8"))["rcpx"]
        path = f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}"
        environment = clean_environment(
            PATH=path, HEADWATER_URL=server.url, XDG_CONFIG_HOME=str(tmp_path)
        )
        said = []
        for language, text in blocks():
            text = text.replace(":4000", f":{server.port}").replace("=7401", f"={rcpx}")
            words = [sys.executable, "-c"] if language == "python" else ["bash", "-ec"]
            done = subprocess.run(
                [*words, text], cwd=tmp_path, capture_output=True, text=True,
                timeout=60, check=False, env=environment,
            )  # fmt: skip
            assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
            said.append(done.stdout)
    assert "created -> paid {'amount': 99, 'by': 'ann'}" in said[0]
    assert "a repeat: paid applied now: False" in said[0]
    assert "in a batch: paid" in said[0]
    assert "order-001 PAY paid" in said[0]
    assert "class s1 current" in said[1]
    assert (tmp_path / "order.svg").read_text(encoding="utf-8").startswith("<svg")
    assert '"state":"shut"' in said[2]
    assert "state='shipped'" in said[3]


def test_every_operation_is_on_the_page_with_what_it_needs() -> None:
    rows = re.findall(r"^\| ([A-Z_, ]+)(?: \(.*\))? \| (\w+) \|$", PAGE.read_text("utf-8"), re.M)
    listed = {name.strip(): needs for names, needs in rows for name in names.split(",")}
    assert set(listed) == set(OPERATIONS)
    for name, needs in listed.items():
        scope = OPERATIONS[name].scope
        assert needs == ("nothing" if not scope else (scope.name or "").lower()), name
