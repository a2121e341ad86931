"""Freed memory is kept for the next piece of its size."""

from __future__ import annotations

import platform
import resource
import subprocess
import sys

import pytest

FAULTS = """
import resource
from headwater.core.memory import keep_freed_memory
assert {keep} is False or keep_freed_memory()
size = 300_000
for _ in range(20):
    bytes(bytearray(size))
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(200):
    bytes(bytearray(size))
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(*, keep: bool) -> int:
    code = FAULTS.format(keep=keep)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(run.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_memory_that_was_freed_is_used_again_without_asking_the_kernel() -> None:
    pages = 300_000 // resource.getpagesize()
    assert faults(keep=True) < pages
