"""What docs/library.md shows is what happens: its blocks are run in order, outputs compared."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "library.md"
END = "\x1e"
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)


@pytest.mark.e2e
def test_every_block_of_the_library_page_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    assert len(blocks) >= 10
    program = f"\nprint({END!r}, end='')\n".join(code for code, _ in blocks)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    printed = done.stdout.split(END)
    for (code, expected), output in zip(blocks, printed, strict=True):
        assert output == expected, code
