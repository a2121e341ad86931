"""numpy, loaded when one of its names is first used.

It takes 75 ms and 11 MiB, more than the rest of an empty server. A server without a record and a
client never need it, and a topic loads it at its first write. So every module takes it from here
(`from headwater.core.arrays import NDArray, numpy`), and none may use it while it is imported:
annotations are text, constants are plain integers or made at their first use. The tidy test of
starts checks that.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray
else:

    class _LateLibrary(ModuleType):
        """Becomes an ordinary module with numpy's names when one of them is asked for.

        Threads that come at the same time wait for each other at the lock of the import, and
        whoever comes later takes the second step again, which changes nothing.
        """

        def __getattr__(self, name: str) -> Any:
            loaded = import_module(self.__name__)
            self.__dict__.update(loaded.__dict__)
            self.__class__ = ModuleType
            return getattr(loaded, name)

    numpy = _LateLibrary("numpy")
    NDArray = None
    """Only annotations name it, and nothing reads those while a program runs."""


def load_arrays() -> None:
    """Have numpy there before it is needed, on a thread that nobody waits for."""
    getattr(numpy, "ndarray")  # noqa: B009


__all__ = ["NDArray", "load_arrays", "numpy"]
