"""Is a mapped stretch of a file in memory? Then reading it waits for no disk.

Asked before bytes are touched by a thread that must not wait. The answer is a hint: pages can go
between asking and touching, and where the system cannot say, they count as being on the disk.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from functools import cache
from typing import Any

from headwater.core.arrays import numpy
from headwater.native import compiled

_native = compiled("residence")
PAGE_BYTES = mmap.PAGESIZE
STRETCH_BYTES_MAX = 2 * 1024 * 1024
"""Longer ones are not worth asking about: a thread that must not wait should not read them."""
_IN_MEMORY = 1


def is_resident(view: memoryview) -> bool:
    """True when every page of this stretch of a mapped file was in memory a moment ago."""
    length = len(view)
    if not 0 < length <= STRETCH_BYTES_MAX:
        return False
    if _native is not None:
        return bool(_native.is_resident(view, PAGE_BYTES))
    mincore = _mincore()
    if mincore is None:
        return False
    address = int(numpy.frombuffer(view, numpy.uint8).ctypes.data)
    begin = address - address % PAGE_BYTES
    pages = numpy.zeros(-(-(address + length - begin) // PAGE_BYTES), numpy.uint8)
    if mincore(begin, address + length - begin, pages.ctypes.data) != 0:
        return False  # not a mapping of ours: nothing is known about this memory
    return bool((pages & _IN_MEMORY).all())


@cache
def _mincore() -> Callable[..., int] | None:
    try:
        function: Any = ctypes.CDLL(None).mincore
    except (OSError, AttributeError):
        return None
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    function.restype = ctypes.c_int
    return function  # type: ignore[no-any-return]
