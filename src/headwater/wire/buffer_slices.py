"""Copying many slices of a buffer to many offsets of another at once, in numpy."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from headwater.core.arrays import NDArray, numpy
from headwater.format.segment.run import at_each_byte

Integers: TypeAlias = "NDArray[numpy.int64]"
Bytes: TypeAlias = "NDArray[numpy.uint8]"

SLICES_MIN: Final = 64
"""Fewer are copied one by one in the time in which columns are made."""
SPREAD_MAX: Final = 3
"""How many times as long as the others the longest may be, or too much is copied."""


class BufferSlices:
    """Slices of a buffer, by their offsets, which rise, and their lengths."""

    def __init__(self, source: bytes | memoryview, at: Integers, lengths: Integers) -> None:
        self._source = source
        self._at = at
        self._lengths = lengths
        self.longest = int(lengths.max())
        self.total = int(lengths.sum())
        alike = self.longest * len(at)
        self.are_worth_it = len(at) >= SLICES_MIN and 0 < alike <= SPREAD_MAX * self.total
        self._are_of_one_length = alike == self.total

    def copy_to(self, target: Bytes, to: Integers, before: NDArray[Any] | None = None) -> None:
        """Copy them to these offsets of a target that has room for the longest behind its end, with
        a row of `before` in front of each, and nothing else between them."""
        even = self._are_of_one_length
        form = f"V{self.longest}"
        if even and _are_even(self._at):
            _every(target, form, to)[:] = _every(self._source, form, self._at)
        else:
            self._copy_uneven(target, to, form)
        if before is not None:
            to = to - before.itemsize
            if even:
                _every(target, before.dtype, to)[:] = before
            else:
                at_each_byte(target, before.dtype)[to] = before

    def together(self) -> Bytes | None:
        """One behind the other in memory of their own, when they are of one length; None else."""
        if not self._are_of_one_length or not self.longest:
            return None
        form = f"V{self.longest}"
        if len(self._at) > 1 and _are_even(self._at):
            copied = _every(self._source, form, self._at).copy()
        else:
            copied = at_each_byte(self._source, form)[self._at]
        return copied.view(numpy.uint8)

    def _copy_uneven(self, target: Bytes, to: Integers, form: str) -> None:
        """As many bytes are copied of each as the longest has. What that is too much is overwritten
        by the slices behind it, and by what stands in front of those."""
        source, at, lengths = self._source, self._at, self._lengths
        inside = int(at.searchsorted(len(source) - self.longest, "right"))
        if inside:
            at_each_byte(target, form)[to[:inside]] = at_each_byte(source, form)[at[:inside]]
        for row in range(inside, len(at)):  # so near the end that there are no more bytes
            start, end = int(to[row]), int(to[row] + lengths[row])
            target[start:end] = numpy.frombuffer(source, numpy.uint8, end - start, int(at[row]))


def _are_even(offsets: Integers) -> bool:
    """All at one distance, as are slices of one length that lie one behind the other."""
    return bool((offsets[1:] - offsets[:-1] == offsets[1] - offsets[0]).all())


def _every(buffer: Any, form: Any, offsets: Integers) -> NDArray[Any]:
    """What is at offsets that are even. Copied three times as fast as from anywhere."""
    step = int(offsets[1]) - int(offsets[0])
    return numpy.ndarray((len(offsets),), form, buffer, int(offsets[0]), (step,))
