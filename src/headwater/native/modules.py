"""Which compiled modules are here, and wanted."""

from __future__ import annotations

import importlib
import os
from types import ModuleType
from typing import Final

PURE_VARIABLE: Final = "HEADWATER_PURE"
MODULES: Final = (
    "answers",
    "batches",
    "bodies",
    "columns",
    "entries",
    "frames",
    "intake",
    "jobs",
    "machine_entries",
    "numbers",
    "printer",
    "residence",
    "syncs",
    "turns",
    "window",
    "writer",
)
"""What is compiled, each from a `.pyx` of that name."""


def compiled(name: str) -> ModuleType | None:
    """The compiled module of this name; None where there is none, or none is wanted."""
    if os.environ.get(PURE_VARIABLE):
        return None
    try:
        return importlib.import_module(f"headwater.native.{name}")
    except ImportError:
        return None


def missing() -> list[str]:
    """Which of the compiled modules are not in use here."""
    return [name for name in MODULES if compiled(name) is None]
