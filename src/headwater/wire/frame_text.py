"""A page of records as JSON, put together in columns: nothing is done for each record.

For records that hold data and nothing else, which is most of them. Where numbers
have as many digits, what stands before each record is of one width: it is made once, the digits
that differ are put in from a table, and all of it is laid between the data.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

from headwater.core.arrays import NDArray, numpy
from headwater.wire.buffer_slices import BufferSlices

Integers: TypeAlias = "NDArray[numpy.int64]"

_DIGITS: Final = 4
_TEN_THOUSAND: Final = 10**_DIGITS
_SEQ: Final = b'},{"$seq":'
_TS: Final = b',"$ts":'
_DATA: Final = b',"data":'
_CLOSE: Final = ord("}")
_COMMA_AFTER: Final = len(b"},")


def join_plain(
    buffer: bytes | memoryview, heads: NDArray[Any], data_at: Integers, more: bytes = b""
) -> bytes | None:
    """Records with these heads and their data at these offsets, as objects with commas between.

    `heads` are in the order of their seqs and `data_at` rises. `more` is added to each of them, as
    fields with a comma before. None when another way is better.
    """
    lengths = heads["data_len"].astype(numpy.int64)
    data = BufferSlices(buffer, data_at, lengths)
    if not data.are_worth_it:
        return None
    seqs, times = heads["seq"].astype(numpy.int64), heads["ts"].astype(numpy.int64)
    seq, ts = _Range(int(seqs[0]), int(seqs[-1])), _Range(int(times.min()), int(times.max()))
    if not seq.is_even or not ts.is_even:
        return None
    seq_end = len(_SEQ) + len(str(seq.low))
    ts_end = seq_end + len(_TS) + len(str(ts.low))
    before = b"".join((_SEQ, b"%d" % seq.low, _TS, b"%d" % ts.low, more, _DATA))
    count, width = len(heads), len(before)
    rows = numpy.frombuffer(bytearray(before * count), f"V{width}")
    _print(rows, seq_end, seq, seqs)
    _print(rows, ts_end, ts, times)
    data_to = numpy.arange(width, (count + 1) * width, width)
    data_to[1:] += lengths[:-1].cumsum()
    end = count * width + data.total
    text = numpy.empty(end + data.longest, numpy.uint8)
    data.copy_to(text, data_to, rows)
    text[end] = _CLOSE
    return text[_COMMA_AFTER : end + 1].tobytes()


class _Range(NamedTuple):
    low: int
    high: int

    @property
    def is_even(self) -> bool:
        """Every number in it has as many digits."""
        return self.low >= 0 and len(str(self.low)) == len(str(self.high))


@cache
def _numbers() -> NDArray[numpy.void]:
    """The text of every number that has so many digits."""
    text = b"".join(b"%04d" % number for number in range(_TEN_THOUSAND))
    return numpy.frombuffer(text, f"V{_DIGITS}")


def _print(rows: NDArray[Any], end: int, known: _Range, values: Integers) -> None:
    """Write numbers into the rows, so that they end there. Every row has the lowest of them
    already: only the digits that differ are written, and there are few."""
    low, high = known
    while low != high:
        digits = min(_DIGITS, len(str(low)))
        rest = values // _TEN_THOUSAND
        digits_of = _numbers()[values - rest * _TEN_THOUSAND]
        last = numpy.ndarray((len(rows),), f"V{digits}", digits_of, _DIGITS - digits, (_DIGITS,))
        at = end - digits
        numpy.ndarray((len(rows),), last.dtype, rows, at, (rows.itemsize,))[:] = last
        values, low, high, end = rest, low // _TEN_THOUSAND, high // _TEN_THOUSAND, at
