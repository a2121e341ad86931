"""Names of a package that are imported when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module


def late_names(
    package: str, names: Mapping[str, Iterable[str] | Mapping[str, str]]
) -> Callable[[str], object]:
    """A `__getattr__` for `package`: which of its names each module has, or has under another."""
    targets = {
        name: (module, there[name] if isinstance(there, Mapping) else name)
        for module, there in names.items()
        for name in there
    }

    def get(name: str) -> object:
        target = targets.get(name)
        if target is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, original = target
        value: object = getattr(import_module(module), original)
        setattr(sys.modules[package], name, value)
        return value

    return get
