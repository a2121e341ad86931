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
from deltalake import DeltaTable

import headwater
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


def test_the_first_commands_of_the_readme_are_targets_of_make() -> None:
    """What they do is run elsewhere: the demo by test_demo, the tests by whoever reads this."""
    first, _ = blocks("sh")
    targets = re.findall(r"^make (\S+)", first, re.MULTILINE)
    assert targets == ["demo", "test"]
    for target in targets:
        subprocess.run(
            ["make", "--dry-run", target], cwd=REPOSITORY, check=True, capture_output=True
        )


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_the_pipeline_of_the_readme_lands_the_topic_in_a_table(tmp_path: Path) -> None:
    with headwater.open(tmp_path / "headwater-data") as database:
        database.append("orders", [{"data": {"total": 42}}, {"data": {"total": 7}}])
    _, session = blocks("sh")
    install, *commands = session.splitlines()
    assert install.startswith('pip install ".[spark]"')
    done = subprocess.run(
        ["bash", "-euc", "\n".join(commands)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env=clean_environment(
            PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        ),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = DeltaTable(str(tmp_path / "lake" / "orders")).to_pyarrow_table()
    assert sorted(rows["total"].to_pylist()) == [7, 42]


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
