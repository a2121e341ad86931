"""What README.md shows is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

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
    assert done.stdout == "7 1 b'{\"total\": 42}'\n"

    (session,) = blocks("console")
    shown = re.split(r"^\$ headwater (.*)\n", session, flags=re.MULTILINE)[1:]
    for command, output in zip(shown[::2], shown[1::2], strict=True):
        done = run("from headwater.cli import main; main()", tmp_path, *command.split())
        assert (done.returncode, done.stderr) == (0, ""), command
        if "..." in output:
            assert done.stdout.startswith(output.partition("...")[0].rstrip(", "))
        elif output:
            assert done.stdout == output


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
