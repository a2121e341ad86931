"""A page of records as JSON, put together in columns: nothing is done for each record.

For records that hold data and nothing else, which is most of them. Where numbers
have as many digits, what stands before each record is of one width: it is made once, the digits
that differ are put in from a table, and all of it is laid between the data.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy
from numpy.typing import NDArray

from headwater.format.segment.run import at_each_byte

Integers = NDArray[numpy.int64]

RECORDS_MIN: Final = 64
"""Fewer are printed one by one in the time in which columns are made."""
SPREAD_MAX: Final = 3
"""The longest record is at most so many times as long as the others, or too much is copied."""
_DIGITS: Final = 4
_TEN_THOUSAND: Final = 10**_DIGITS
_TABLE: Final = numpy.frombuffer(
    b"".join(b"%04d" % number for number in range(_TEN_THOUSAND)), f"V{_DIGITS}"
)
_SEQ: Final = b'},{"$seq":'
_TS: Final = b',"$ts":'
_DATA: Final = b',"data":'
_CLOSE: Final = ord("}")
_COMMA_AFTER: Final = len(b"},")


def join_plain(
    buffer: bytes | memoryview, heads: NDArray[Any], data_at: Integers, more: bytes = b""
) -> bytes | None:
    """Records with these heads and their data at these places, as objects with commas between.

    `heads` are in the order of their seqs and `data_at` rises. `more` is told of each of them, as
    fields with a comma before. None when another way is better.
    """
    count = len(heads)
    if count < RECORDS_MIN:
        return None
    lengths = heads["data_len"].astype(numpy.int64)
    longest, length = int(lengths.max()), int(lengths.sum())
    seqs, times = heads["seq"].astype(numpy.int64), heads["ts"].astype(numpy.int64)
    seq, ts = _Range(int(seqs[0]), int(seqs[-1])), _Range(int(times.min()), int(times.max()))
    if not seq.is_even or not ts.is_even or longest * count > SPREAD_MAX * length:
        return None
    seq_end = len(_SEQ) + len(str(seq.low))
    ts_end = seq_end + len(_TS) + len(str(ts.low))
    before = b"".join((_SEQ, b"%d" % seq.low, _TS, b"%d" % ts.low, more, _DATA))
    rows = numpy.frombuffer(bytearray(before * count), f"V{len(before)}")
    _print(rows, seq_end, seq, seqs)
    _print(rows, ts_end, ts, times)
    end = count * len(before) + length
    text = numpy.empty(end + longest, numpy.uint8)
    if longest * count == length and _are_even(data_at):
        form, step = f"V{longest}", len(before) + longest
        distance = int(data_at[1] - data_at[0])
        data = numpy.ndarray((count,), form, buffer, int(data_at[0]), (distance,))
        numpy.ndarray((count,), form, text, len(before), (step,))[:] = data
        numpy.ndarray((count,), rows.dtype, text, 0, (step,))[:] = rows
    else:
        data_to = numpy.arange(len(before), (count + 1) * len(before), len(before))
        data_to[1:] += lengths[:-1].cumsum()
        _lay_out(text, data_to, buffer, data_at, lengths, longest)
        at_each_byte(text, rows.dtype)[data_to - len(before)] = rows
    text[end] = _CLOSE
    return text[_COMMA_AFTER : end + 1].tobytes()


class _Range(NamedTuple):
    low: int
    high: int

    @property
    def is_even(self) -> bool:
        """Every number in it has as many digits."""
        return self.low >= 0 and len(str(self.low)) == len(str(self.high))


def _are_even(offsets: Integers) -> bool:
    """All at one distance: records of one length that lie one behind the other."""
    return bool((numpy.diff(offsets) == offsets[1] - offsets[0]).all())


def _lay_out(
    text: NDArray[numpy.uint8],
    data_to: Integers,
    buffer: bytes | memoryview,
    data_at: Integers,
    lengths: Integers,
    longest: int,
) -> None:
    """Copy the data, as many bytes for each record as the longest has. What that is too much is
    overwritten: by the records behind it, and by what stands before them."""
    form = f"V{longest}"
    inside = int(data_at.searchsorted(len(buffer) - longest, "right"))
    if inside:
        at_each_byte(text, form)[data_to[:inside]] = at_each_byte(buffer, form)[data_at[:inside]]
    for row in range(inside, len(data_at)):  # so near the end that there are no more bytes
        start, to, length = int(data_at[row]), int(data_to[row]), int(lengths[row])
        text[to : to + length] = numpy.frombuffer(buffer, numpy.uint8, length, start)


def _print(rows: NDArray[Any], end: int, known: _Range, values: Integers) -> None:
    """Write numbers into the rows, so that they end there. Every row has the lowest of them
    already: only the digits that differ are written, and there are few."""
    low, high = known
    while low != high:
        digits = min(_DIGITS, len(str(low)))
        rest = values // _TEN_THOUSAND
        found = _TABLE[values - rest * _TEN_THOUSAND]
        last = numpy.ndarray((len(rows),), f"V{digits}", found, _DIGITS - digits, (_DIGITS,))
        at = end - digits
        numpy.ndarray((len(rows),), last.dtype, rows, at, (rows.itemsize,))[:] = last
        values, low, high, end = rest, low // _TEN_THOUSAND, high // _TEN_THOUSAND, at
