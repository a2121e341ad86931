"""Filters that Spark hands down: those on seq, ts, topic and tag are evaluated here, exactly.

Whatever is not understood to the last null is left to Spark. Numbers bound what is planned and
read at all; tags are compared before a payload is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import numpy
import pyarrow
import pyarrow.compute
from numpy.typing import NDArray

from headwater.core.limits import INTEGER_MAX
from headwater.spark.source.options import microseconds
from headwater.wire.frame_rows import Column, Integers, Mask, RecordColumns

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

_US_MAX: Final = 2**62
_NAMES: Final = ("seq", "ts", "topic", "tag")


@dataclass(frozen=True, slots=True)
class TextTest:
    """One condition on a text: a comparison, or on whether it is there."""

    kind: str
    values: tuple[str, ...] = ()

    def holds(self, text: str | None) -> bool:
        if text is None:
            return self.kind == "IsNull"
        return _ON_TEXT[self.kind](text, self.values)

    def mask(self, column: Column) -> Mask:
        """For each row; a text that is not there is what `holds(None)` says."""
        matches = _ON_COLUMN[self.kind](column, self.values)
        filled = pyarrow.compute.fill_null(matches, self.kind == "IsNull")
        result: Mask = filled.to_numpy(zero_copy_only=False)
        return result


_ON_TEXT: Final[dict[str, Callable[[str, tuple[str, ...]], bool]]] = {
    "In": lambda text, values: text in values,
    "NotIn": lambda text, values: text not in values,
    "StartsWith": lambda text, values: text.startswith(values[0]),
    "EndsWith": lambda text, values: text.endswith(values[0]),
    "Contains": lambda text, values: values[0] in text,
    "IsNull": lambda _text, _values: False,
    "IsNotNull": lambda _text, _values: True,
}


def _is_in(column: Column, values: tuple[str, ...]) -> Column:
    matches = pyarrow.compute.is_in(column, pyarrow.array(values, pyarrow.string()))
    return pyarrow.compute.if_else(column.is_valid(), matches, None)


_ON_COLUMN: Final[dict[str, Callable[[Column, tuple[str, ...]], Column]]] = {
    "In": _is_in,
    "NotIn": lambda column, values: pyarrow.compute.invert(_is_in(column, values)),
    "StartsWith": lambda column, values: pyarrow.compute.starts_with(column, values[0]),
    "EndsWith": lambda column, values: pyarrow.compute.ends_with(column, values[0]),
    "Contains": lambda column, values: pyarrow.compute.match_substring(column, values[0]),
    "IsNull": lambda column, _values: column.is_null(),
    "IsNotNull": lambda column, _values: column.is_valid(),
}


@dataclass(slots=True)
class Bounds:
    """Both ends included."""

    low: int = 0
    high: int = INTEGER_MAX
    only: NDArray[numpy.int64] | None = None
    """When given: these numbers and no others, ascending."""

    def narrow(self, low: int | None = None, high: int | None = None) -> None:
        self.low = self.low if low is None else max(self.low, low)
        self.high = self.high if high is None else min(self.high, high)

    def narrow_to(self, numbers: Iterable[int]) -> None:
        allowed = numpy.array(sorted(set(numbers)), numpy.int64)
        self.only = allowed if self.only is None else numpy.intersect1d(self.only, allowed)
        self.narrow(*((int(allowed[0]), int(allowed[-1])) if len(allowed) else (1, 0)))

    def meets(self, low: int, high: int) -> bool:
        """True when a number from `low` to `high` could pass."""
        low, high = max(low, self.low), min(high, self.high)
        if low > high:
            return False
        if self.only is None:
            return True
        at = int(numpy.searchsorted(self.only, low))
        return at < len(self.only) and int(self.only[at]) <= high

    def mask(self, numbers: Integers) -> Mask | None:
        """None when all pass."""
        if not len(numbers):
            return None
        mask: Mask | None = None
        if self.low > int(numbers.min()) or self.high < int(numbers.max()):
            mask = (numbers >= self.low) & (numbers <= self.high)
        if self.only is not None:
            inside = numpy.isin(numbers, self.only)
            mask = inside if mask is None else mask & inside
        return mask


@dataclass(slots=True)
class Filters:
    seq: Bounds = field(default_factory=Bounds)
    ts_us: Bounds = field(default_factory=lambda: Bounds(-_US_MAX, _US_MAX))
    """What Spark asked for; a row without a time does not pass a bound."""
    topic: list[TextTest] = field(default_factory=list)
    tag: list[TextTest] = field(default_factory=list)
    times_only: bool = False
    """A condition on ts was handed down: rows without a time do not pass."""

    @property
    def has_times(self) -> bool:
        return self.ts_us.low > -_US_MAX or self.ts_us.high < _US_MAX

    def wants_topic(self, name: str) -> bool:
        return all(test.holds(name) for test in self.topic)

    def wants_gap(self, gap_from: int) -> bool:
        """Would a row pass that has a topic and a seq and nothing else?"""
        if self.times_only or not all(test.holds(None) for test in self.tag):
            return False
        return self.seq.meets(gap_from, gap_from)

    def mask(self, rows: RecordColumns) -> Mask | None:
        """Which rows pass; None when all do."""
        masks = [self.seq.mask(rows.seqs), self.ts_us.mask(rows.ts_us)]
        if self.tag:
            column = rows.text("tag")
            masks += [test.mask(column) for test in self.tag]
        given = [mask for mask in masks if mask is not None]
        mask = reduce(numpy.logical_and, given) if given else None
        return None if mask is None or mask.all() else mask


def push(filters: Iterable[Filter], known: Iterable[str], into: Filters) -> list[Filter]:
    """Take over what can be evaluated here; the rest is given back, for Spark.

    `known` are the columns of the reader whose names are ours to filter by.
    """
    names = set(known).intersection(_NAMES)
    return [each for each in filters if not _push_one(each, names, into)]


def _push_one(given: Filter, names: set[str], into: Filters) -> bool:
    kind = type(given).__name__
    inner: Any = given
    negated = kind == "Not"
    if negated:
        inner = inner.child
        kind = type(inner).__name__
    attribute: tuple[str, ...] = getattr(inner, "attribute", ())
    if len(attribute) != 1 or attribute[0] not in names:
        return False
    name, value = attribute[0], getattr(inner, "value", None)
    if name in ("topic", "tag"):
        test = _text_test(kind, value, negated)
        if test is not None:
            (into.topic if name == "topic" else into.tag).append(test)
        return test is not None
    if negated:
        return False
    if name == "seq":
        return _push_number(kind, value, into.seq, _integer)
    pushed = _push_number(kind, value, into.ts_us, _time)
    into.times_only = into.times_only or pushed
    return pushed


def _text_test(kind: str, value: Any, negated: bool) -> TextTest | None:
    if kind in ("IsNull", "IsNotNull"):
        return TextTest("IsNull" if (kind == "IsNull") != negated else "IsNotNull")
    if kind == "EqualTo" and isinstance(value, str):
        return TextTest("NotIn" if negated else "In", (value,))
    if kind == "In" and all(isinstance(each, str) for each in value):
        return TextTest("NotIn" if negated else "In", tuple(value))
    if kind in ("StringStartsWith", "StringEndsWith", "StringContains") and not negated:
        return TextTest(kind.removeprefix("String"), (value,))
    return None


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _time(value: Any) -> int | None:
    # Without a zone it would be a time by a clock of Spark's that is not known here.
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return microseconds(value)


def _push_number(kind: str, value: Any, bounds: Bounds, read: Callable[[Any], int | None]) -> bool:
    if kind == "IsNotNull":
        return True
    if kind == "In":
        numbers = [read(each) for each in value]
        whole = [number for number in numbers if number is not None]
        if len(whole) != len(numbers):
            return False
        bounds.narrow_to(whole)
        return True
    number = read(value)
    if number is None or kind not in _COMPARISONS:
        return False
    _COMPARISONS[kind](bounds, number)
    return True


_COMPARISONS: Final[dict[str, Callable[[Bounds, int], None]]] = {
    "EqualTo": lambda bounds, number: bounds.narrow(number, number),
    "GreaterThan": lambda bounds, number: bounds.narrow(low=number + 1),
    "GreaterThanOrEqual": lambda bounds, number: bounds.narrow(low=number),
    "LessThan": lambda bounds, number: bounds.narrow(high=number - 1),
    "LessThanOrEqual": lambda bounds, number: bounds.narrow(high=number),
}
