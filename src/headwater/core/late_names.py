"""Names of a package that are imported when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def late_names(package: str, targets: Mapping[str, str]) -> Callable[[str], object]:
    """A `__getattr__` for `package`; `places` maps its names to "module:name there"."""

    def get(name: str) -> object:
        target = targets.get(name)
        if target is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, there = target.partition(":")
        value: object = getattr(import_module(module), there)
        setattr(sys.modules[package], name, value)
        return value

    return get
