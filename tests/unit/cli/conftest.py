"""Run a command in process and see what a shell would see."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headwater.cli.app import app
from tests.unit.cli.logs import some_payloads, write_log


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)

    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    def complaint(self) -> str:
        """The one line on stderr."""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("headwater: ")
        assert "Traceback" not in self.err
        return lines[0]


Run = Callable[..., Outcome]


@pytest.fixture
def run() -> Run:
    def invoke(*words: str | Path) -> Outcome:
        result = CliRunner().invoke(app, [str(word) for word in words])
        return Outcome(result.exit_code, result.stdout, result.stderr)

    return invoke


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with twenty records in one file."""
    directory = tmp_path / "data"
    write_log(directory, some_payloads())
    return directory


@pytest.fixture
def wal_file(data: Path) -> Path:
    return data / "wal" / "wal-0000000000000001.log"
