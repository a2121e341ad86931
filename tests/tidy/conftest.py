"""Lets go of the trees of all source files behind the last tidy test.

A million objects would slow down every garbage collection of the tests that follow.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tidy.source import every_source


def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    if nextitem is None or nextitem.path.parent != Path(__file__).parent:
        every_source.cache_clear()
