"""One rule for Python values that become JSON, wherever they are given."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

import headwater
from headwater.api.call_list import AppendCall
from headwater.client import calls
from headwater.client.calls import HttpCall
from headwater.core.errors import InvalidRequestError
from headwater.core.json_text import json_text
from headwater.core.results import Appended
from headwater.model.machines.errors import MachineError
from headwater.model.machines.values import object_bytes

NAN, INFINITY = float("nan"), float("inf")


@dataclasses.dataclass
class Price:
    amount: Any
    parts: Any = None


class Colour(enum.Enum):
    RED = "red"
    LOST = NAN


NOT_FINITE = [
    NAN,
    -INFINITY,
    [{"a": [1, (2, INFINITY)]}],
    Price(1.5, Price(NAN)),
    Colour.LOST,
    Decimal("NaN"),
    [Decimal("-Infinity")],
    Price(Decimal("sNaN")),
]
KEPT = [
    (None, b"null"),
    ({"a": None, "b": "NaN", "c": "Infinity"}, b'{"a":null,"b":"NaN","c":"Infinity"}'),
    (Decimal("1.10"), b'"1.10"'),
    (b"\x00\xff", b'"AP8="'),
    (datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC), b'"2026-01-02T03:04:05Z"'),
    (datetime.date(2026, 1, 2), b'"2026-01-02"'),
    (uuid.UUID(int=1), b'"00000000-0000-0000-0000-000000000001"'),
    (Colour.RED, b'"red"'),
    ((1, {2}), b"[1,[2]]"),
    (Price(None, [Decimal(1)]), b'{"amount":null,"parts":["1"]}'),
    ({1: 2}, b'{"1":2}'),
    ([None, msgspec.Raw(b'{"x" : null}')], b'[null,{"x" : null}]'),
    (2**70, b"1180591620717411303424"),
]


def sent(record: dict[str, object]) -> HttpCall[Appended]:
    return calls.append(AppendCall("t", record, None, "key", None, None, None, False))


@pytest.mark.parametrize("value", NOT_FINITE)
def test_what_is_not_finite_is_refused_wherever_it_is_given(value: object, tmp_path: Path) -> None:
    with headwater.open(tmp_path / "data") as database:
        writers: list[Callable[[], object]] = [
            lambda: database.append("t", {"data": value}),
            lambda: database.append("t", {"data": 1, "meta": {"m": value}}),
            lambda: sent({"data": value}),
            lambda: sent({"data": 1, "meta": {"m": value}}),
        ]
        for write in writers:
            with pytest.raises(InvalidRequestError, match="no NaN and no infinity"):
                write()
        assert list(database.topics()) == [], "a refused write made the topic"
    with pytest.raises(MachineError, match="no NaN and no infinity"):
        object_bytes({"ctx": value}, "ctx")


@pytest.mark.parametrize(("value", "expected"), KEPT)
def test_other_values_become_json_by_one_rule(
    value: object, expected: bytes, tmp_path: Path
) -> None:
    assert json_text(value, "it") == expected
    body = sent({"data": value}).body
    assert body is not None
    assert b'"data":' + expected in body
    with headwater.open(tmp_path / "data") as database:
        database.append("t", {"data": value})
        (record,) = database.diff("t").records
        assert record.data_json == expected


@pytest.mark.parametrize("value", [object(), lambda: None, "\ud800", {None: 1}, 1j])
def test_what_has_no_json_is_refused_and_named(value: object) -> None:
    with pytest.raises(InvalidRequestError, match=r"^it cannot be written as JSON: "):
        json_text(value, "it")
