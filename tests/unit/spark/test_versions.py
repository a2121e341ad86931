"""Which Spark is allowed is which Spark is tested."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[3]


def test_the_oldest_spark_that_is_tested_is_the_oldest_that_is_allowed() -> None:
    pinned = re.search(r"^SPARK_OLDEST := (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert pinned is not None
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lists = project["optional-dependencies"]
    wanted = next(w for w in map(Requirement, lists["spark"]) if w.name == "pyspark")
    lowest = next(Version(each.version) for each in wanted.specifier if each.operator == ">=")
    assert Version(pinned[1]) == lowest
    assert "step make test-spark-oldest" in (ROOT / ".ci" / "run").read_text()


def test_the_spark_of_all_other_tests_is_another_minor_and_allowed() -> None:
    pins = (ROOT / "requirements" / "constraints.txt").read_text()
    newest = re.search(r"^pyspark==(\S+)$", pins, re.MULTILINE)
    oldest = re.search(r"^SPARK_OLDEST := (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert newest is not None
    assert oldest is not None
    assert Version(newest[1]).release[:2] > Version(oldest[1]).release[:2]
