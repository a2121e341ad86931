"""The documentation is a site too: it builds without a warning, and no page is left out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mkdocs", reason="the extra docs is not installed")

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.e2e
def test_the_site_builds_without_a_warning_and_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {path.relative_to(REPOSITORY / "docs") for path in (REPOSITORY / "docs").rglob("*.md")}
    built = {path.relative_to(tmp_path) for path in tmp_path.rglob("*.html")}
    names = {page.with_suffix(".html") for page in pages if page.name != "README.md"}
    assert names <= built
    assert {Path("changelog.html"), Path("contributing.html")} <= built
    for page in built:
        text = (tmp_path / page).read_text(encoding="utf-8")
        for tag in ('<script src="http', '<link rel="stylesheet" href="http', '<img src="http'):
            assert tag not in text, page
