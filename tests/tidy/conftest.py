"""The source files, read and parsed once for all tidy rules, and let go of behind the last."""

from __future__ import annotations

import pytest

from tests.tidy.source import Source, every_source


@pytest.fixture(scope="package")
def sources() -> tuple[Source, ...]:
    return every_source()
