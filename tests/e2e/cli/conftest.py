"""The real script, a real server, and a home directory of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.rig.server_process import ServerProcess, clean_environment

SCRIPT = Path(sys.executable).with_name("headwater")


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)

    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


class Shell:
    """Runs `headwater` as a user would."""

    def __init__(self, home: Path, **environment: str) -> None:
        self.home = home
        self.environment = clean_environment(
            XDG_CONFIG_HOME=str(home / "config"), COLUMNS="200", **environment
        )

    def __call__(self, *words: str | Path, stdin: str | bytes = b"") -> Done:
        done = subprocess.run(
            [SCRIPT, *words],
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            capture_output=True,
            timeout=60,
            check=False,
            cwd=self.home,
            env=self.environment,
        )
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    def good(self, *words: str | Path, stdin: str | bytes = b"") -> str:
        done = self(*words, stdin=stdin)
        assert (done.code, done.err) == (0, ""), done
        return done.out

    def begin(self, *words: str | Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [SCRIPT, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.home,
            env=self.environment,
        )


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("shared") / "data") as server:
        yield server


@pytest.fixture
def shell(shared: ServerProcess, tmp_path: Path) -> Shell:
    return Shell(tmp_path, HEADWATER_URL=shared.url)
