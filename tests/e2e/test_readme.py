"""What README.md shows is what happens."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rig.server_process import clean_environment

REPOSITORY = Path(__file__).parents[2]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def run(program: str, directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.e2e
def test_the_readme_example_runs_and_its_commands_answer(tmp_path: Path) -> None:
    (example,) = blocks("python")
    done = run(example, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "[1, 2]",
        "1 paid {'total': 42}",
        "2 None {'total': 7}",
        "2 True",
        "1",
    ]

    (session,) = blocks("console")
    shown = re.split(r"^\$ headwater (.*)\n", session, flags=re.MULTILINE)[1:]
    for command, output in zip(shown[::2], shown[1::2], strict=True):
        done = run("from headwater.cli import main; main()", tmp_path, *command.split())
        assert (done.returncode, done.stderr) == (0, ""), command
        if "..." in output:
            assert done.stdout.startswith(output.partition("...")[0].rstrip(", "))
        elif output:
            assert done.stdout == output


@pytest.mark.e2e
def test_the_server_of_the_readme_starts_writes_and_reads(tmp_path: Path) -> None:
    if shutil.which("curl") is None or shutil.which("bash") is None:
        pytest.skip("there is no curl or no bash here")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    (session,) = blocks("bash")
    done = subprocess.run(
        ["bash", "-euc", f"trap 'kill %1; wait' EXIT\n{session.replace('4000', port)}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=clean_environment(
            PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            HEADWATER_PORT=port,
            HEADWATER_URL=f"127.0.0.1:{port}",
            XDG_CONFIG_HOME=str(tmp_path),
        ),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "wrote 1 record to orders, seq 1\n" in done.stdout
    assert done.stdout.count('#paid {"total": 42}') == 2
    assert '"data":{"total": 42}' in done.stdout
    assert done.stdout.endswith("stopped cleanly\n")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_link_between_our_pages_leads_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert not missing


def test_the_listing_of_the_house_names_rooms_that_exist() -> None:
    rooms = re.findall(r"^  (\w+)/  ", README, re.MULTILINE)
    assert len(rooms) >= 8
    missing = [room for room in rooms if not (REPOSITORY / "src/headwater" / room).is_dir()]
    assert not missing
