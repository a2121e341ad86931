"""What docs/start.md shows is what happens: its blocks run in one shell, in order."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.rig.server_process import clean_environment

pytestmark = pytest.mark.e2e

PAGE = (Path(__file__).parents[2] / "docs" / "start.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
END = "--- end of block ---"
INSTALLING = "sh"
"""These blocks are run by tests/e2e/test_packaging.py, in an environment of their own."""


def free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        taken = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in taken]


def session(port: int, kafka_port: int) -> tuple[str, list[str]]:
    """The page as one script, and what the page shows after each of its blocks."""
    parts, shown = ["trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT"], []
    for language, code, output in BLOCK.findall(PAGE):
        if language == INSTALLING:
            continue
        code = code.replace("4000", str(port)).replace("9092", str(kafka_port))
        parts.append(code if language == "bash" else f"python - <<'PROGRAM'\n{code}PROGRAM")
        parts.append(f"echo '{END}'")
        shown.append(output)
    return "\n".join(parts), shown


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")
def test_every_block_of_the_start_page_does_what_it_shows(tmp_path: Path) -> None:
    port, kafka_port = free_ports(2)
    script, shown = session(port, kafka_port)
    done = subprocess.run(
        ["bash", "-euc", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        env=clean_environment(
            PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            HEADWATER_PORT=str(port),
            HEADWATER_KAFKA_PORT=str(kafka_port),
            HEADWATER_URL=f"127.0.0.1:{port}",
            XDG_CONFIG_HOME=str(tmp_path),
        ),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    printed = done.stdout.split(f"{END}\n")
    assert len(shown) == len(printed) - 1 >= 7
    for expected, output in zip(shown, printed, strict=False):
        missing = [line for line in expected.splitlines() if line not in output.splitlines()]
        assert not missing, output
    after_the_kill = printed[-3]
    assert "ok: headwater-data: " in after_the_kill
    found = re.findall(r'\{"total": ?(\d+)\}', after_the_kill)
    assert found == ["42", "7", "19", "3", "5", "8"]
    machine = printed[-4]
    assert '"from_state":"shut","to_state":"open"' in machine


def test_the_page_shows_how_to_install_first() -> None:
    assert BLOCK.findall(PAGE)[0][0] == INSTALLING
