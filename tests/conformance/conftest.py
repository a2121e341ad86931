"""Every test that asks for a `place` runs once on each kind of disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.disks import DISKS, Place


@pytest.fixture(params=sorted(DISKS))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return DISKS[request.param](tmp_path)
