"""Names and modules of a package that are imported when they are first used.

A package says in its `__init__` what of it loads late. Who needs a name asks for it as always;
who needs a late module imports it as a module (`from headwater.engine.machines import store`), not
names out of it, and the module is loaded when the first of its names is used.
See docs/decisions/0045-parts-load-at-their-first-use.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from types import ModuleType


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


def late_modules(package: str, names: Iterable[str]) -> Callable[[str], object]:
    """A `__getattr__` for `package`: these modules of it are loaded by their first use."""
    modules = {name: LateModule(f"{package}.{name}") for name in names}

    def get(name: str) -> object:
        module = modules.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return module

    return get


def load(*modules: ModuleType) -> None:
    """Now, for a thread that may wait: a late module that is used by an event loop stops it."""
    for module in modules:
        import_module(module.__name__)


class LateModule(ModuleType):
    """Stands for a module in whoever imported it before it was loaded. Threads that come at the
    same time wait for each other at the lock of the import."""

    def __getattr__(self, name: str) -> object:
        value: object = getattr(import_module(self.__name__), name)
        return value

    def __setattr__(self, name: str, value: object) -> None:
        """What a test puts in the place of something is seen by everyone."""
        setattr(import_module(self.__name__), name, value)
