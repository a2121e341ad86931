"""The zip of the package that is sent to executors."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from headwater.core.errors import RequestError
from headwater.spark.sessions.package_zip import package_zip, ship, zip_of
from headwater.spark.sessions.session import parse_master

SOURCE = Path(__file__).parents[2] / "src" / "headwater"


class Recorder:
    """In the place of a Spark context: keeps what it is asked to send."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def addPyFile(self, path: str) -> None:  # noqa: N802
        self.sent.append(path)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_the_zip_holds_every_module_as_it_is_here() -> None:
    with zipfile.ZipFile(package_zip()) as packed:
        names = packed.namelist()
        for name in names:
            assert packed.read(name) == (SOURCE.parent / name).read_bytes()
    there = {path.relative_to(SOURCE.parent).as_posix() for path in SOURCE.rglob("*.py")}
    assert set(names) == there


def test_the_same_files_always_give_the_same_bytes() -> None:
    files = [("a.py", b"one"), ("b/c.py", b"two" * 100)]
    first = zip_of(files)
    assert zip_of(files) == first
    assert {entry.date_time for entry in zipfile.ZipFile(io.BytesIO(first)).infolist()} == {
        (1980, 1, 1, 0, 0, 0)
    }


def test_the_zip_is_made_once() -> None:
    made = Path(package_zip())
    before = made.stat().st_mtime_ns
    assert Path(package_zip()) == made
    assert made.stat().st_mtime_ns == before


def test_python_imports_the_package_from_the_zip() -> None:
    path = f"import sys; sys.path.insert(0, {str(package_zip())!r})"
    code = f"{path}; import headwater.spark.sessions.java"
    shown = "print(headwater.spark.sessions.java.__file__)"
    words = [sys.executable, "-c", f"{code}; {shown}"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{package_zip()}/headwater/spark/sessions/java.py"


@pytest.mark.parametrize(
    ("master", "settings", "sent"),
    [
        ("local[2]", {}, False),
        ("local-cluster[2,1,1024]", {}, True),
        ("spark://10.0.0.5:7077", {}, True),
        ("spark://10.0.0.5:7077", {"spark.headwater.ship": "false"}, False),
        ("local[2]", {"spark.headwater.ship": "true"}, True),
    ],
)
def test_executors_that_may_lack_the_package_are_sent_it(
    master: str, settings: dict[str, str | None], sent: bool
) -> None:
    context: Any = Recorder()
    assert ship(context, settings, has_executors=not parse_master(master).in_this_process) is sent
    assert context.sent == ([str(package_zip())] if sent else [])


def test_a_wish_that_is_neither_yes_nor_no_is_refused() -> None:
    context: Any = Recorder()
    with pytest.raises(RequestError, match=r"spark\.headwater\.ship is true or false"):
        ship(context, {"spark.headwater.ship": "perhaps"}, has_executors=True)
