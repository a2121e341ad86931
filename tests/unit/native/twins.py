"""The code beside a compiled function, asked for the same."""

from __future__ import annotations

import os
from typing import Any

import pytest

from headwater.native import missing

is_compiled = pytest.mark.skipif(
    bool(missing()) and not os.environ.get("CI"),
    reason="not compiled here: apt-get install gcc python3-dev, then make clean venv",
)


def pure(function: Any, module: Any, *arguments: Any) -> Any:
    """What the module's own code gives."""
    native, module._native = module._native, None
    try:
        return function(*arguments)
    finally:
        module._native = native
