"""Numbers that may be too large are found by both twins; only the pure one looks into strings."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.format.kafka import mapping
from headwater.native import compiled
from tests.unit.native.twins import is_compiled

NUMBERS = st.from_regex(
    r"-?(0|[1-9][0-9]{0,5}|[1-9]{190,320})(\.[0-9]{1,3})?([eE][+-]?[0-9]{1,4})?", fullmatch=True
)
TEXTS = st.text(st.sampled_from('ab"\\e+019\n'), max_size=12).map(
    lambda text: msgspec.json.encode(text).decode()
)
VALUES = st.recursive(
    NUMBERS | TEXTS | st.sampled_from(["true", "false", "null"]),
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda each: f"[{', '.join(each)}]")
        | st.tuples(TEXTS, inner).map(lambda each: f"{{{each[0]}:{each[1]}}}")
    ),
    max_leaves=8,
)


@is_compiled
@given(VALUES)
def test_both_twins_tell_every_number_that_cannot_be_held(text: str) -> None:
    native = compiled("numbers")
    assert native is not None
    value = text.encode()
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', "", text).encode()
    assert native.may_be_large(value) == mapping.may_be_large(bare)
    try:
        msgspec.json.decode(value)
    except msgspec.MsgspecError:
        assert native.may_be_large(value)
        assert not mapping.is_json(value)
    else:
        assert mapping.is_json(value)


@is_compiled
@pytest.mark.parametrize(
    "text", [b"", b'"', b'"\\', b'"\\"', b"1", b"e", b"1e", b"1e+", b"9" * 300]
)
def test_a_text_that_ends_anywhere_is_not_read_beyond_its_end(text: bytes) -> None:
    native = compiled("numbers")
    assert native is not None
    assert native.may_be_large(text) == (len(text) >= 200)
