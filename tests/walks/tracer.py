"""Which functions of the package run, on which thread, in which order.

`sys.setprofile` reports every call of a Python function. Compiled functions are wrapped where the
package asks for them, because Python does not report those of Cython.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any, Final, NamedTuple

import headwater
from headwater import native

PACKAGE: Final = f"{Path(headwater.__file__).parent}/"


class Function(NamedTuple):
    file: str
    """In the package: `wal/shard.py`."""
    name: str
    """With its class: `Shard.submit`."""


class Call(NamedTuple):
    thread: str
    function: Function
    root: str
    """Name of the outermost function of the package that is running on this thread, or of the
    timer that runs inside it."""


RawCall = tuple[str, CodeType | Function, str]


class Tracer:
    """Installed before the modules and threads start that it is to see. What the functions named
    by `timers` call has one of them as its root, whoever calls that."""

    def __init__(self, timers: Collection[str] = ()) -> None:
        self._timers = frozenset(timers)
        self._raw: list[RawCall] | None = None
        self._functions: dict[CodeType, Function | None] = {}
        self._compiled = native.compiled

    def install(self) -> None:
        native.compiled = self._traced_module
        threading.setprofile(self._note)

    @property
    def calls_seen(self) -> int:
        return len(self._raw or ())

    @contextmanager
    def recording(self) -> Iterator[list[Call]]:
        """The calls are in the list when the block has ended."""
        calls: list[Call] = []
        raw: list[RawCall] = []
        self._raw = raw
        try:
            yield calls
        finally:
            self._raw = None
        for thread, called, root in raw:
            function = self._function(called) if isinstance(called, CodeType) else called
            if function is not None:
                calls.append(Call(thread, function, root))

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        raw, code = self._raw, frame.f_code
        if raw is not None and event == "call" and code.co_filename.startswith(PACKAGE):
            raw.append((threading.current_thread().name, code, self._root_of(frame)))

    def _function(self, code: CodeType) -> Function | None:
        """None for what has no name of its own: comprehensions, lambdas, bodies of modules."""
        if code not in self._functions:
            name = code.co_qualname.replace("<locals>.", "")
            file = code.co_filename.removeprefix(PACKAGE)
            self._functions[code] = None if "<" in name else Function(file, name)
        return self._functions[code]

    def _traced_module(self, name: str) -> ModuleType | None:
        """The compiled module, with functions that note their calls."""
        compiled = self._compiled(name)
        if compiled is None:
            return None
        traced = ModuleType(compiled.__name__)
        for key, value in vars(compiled).items():
            is_function = callable(value) and not isinstance(value, type) and key[0] != "_"
            function = Function(f"native/{name}.pyx", key)
            setattr(traced, key, self._traced(function, value) if is_function else value)
        return traced

    def _traced(self, function: Function, compiled: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            raw = self._raw
            if raw is not None:
                root = self._root_of(sys._getframe(1))
                raw.append((threading.current_thread().name, function, root))
            return compiled(*args, **kwargs)

        return call

    def _root_of(self, frame: FrameType) -> str:
        code = frame.f_code
        at: FrameType | None = frame
        while at is not None:
            if at.f_code.co_filename.startswith(PACKAGE):
                code = at.f_code
                if code.co_qualname in self._timers:
                    break
            at = at.f_back
        return code.co_qualname
