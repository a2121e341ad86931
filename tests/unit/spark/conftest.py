"""The rig of the sink's tests, as a fixture."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.spark.sink_rig import Rig, rig_on


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with rig_on(tmp_path / "data") as started:
        yield started
