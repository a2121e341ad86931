"""Records as text: one line, the same JSON, nothing a terminal would obey."""

from __future__ import annotations

import io
import json

from hypothesis import given
from hypothesis import strategies as st

from headwater.cli.records import ascii_json, record_json, record_line
from headwater.cli.write import read_lines
from headwater.core.records import Record

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES, st.sampled_from([None, 0, 2, "\t", "\r\n"]))
def test_any_json_becomes_one_line_of_ascii_that_means_the_same(
    value: object, indent: int | str | None
) -> None:
    raw = json.dumps(value, ensure_ascii=False, indent=indent).encode("utf-8", "surrogatepass")
    raw = raw.decode("utf-8", "replace").encode()
    shown = ascii_json(raw)
    assert shown.isascii()
    assert shown.isprintable()
    assert json.loads(shown) == json.loads(raw)


@given(st.text(), st.text(), VALUES)
def test_a_record_is_one_printable_line_whatever_is_in_it(
    node: str, tag: str, value: object
) -> None:
    data = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    record = Record(7, 1_700_000_000_000, node, tag, data, b'{"k":1}')
    for line in (record_json(record, "topic"), record_line(record, "topic")):
        assert line.isprintable()
    assert json.loads(record_json(record))["$tag"] == tag


class Dripping(io.BytesIO):
    """Gives a few bytes at a time, as a pipe does."""

    def read1(self, size: int | None = -1, /) -> bytes:
        return self.read(3)


def test_lines_are_numbered_and_come_as_soon_as_they_are_whole() -> None:
    text = b"1\n\n  \n22\r\nlast"
    expected = [("line 1", b"1"), ("line 4", b"22"), ("line 5", b"last")]
    assert [line for lines in read_lines(io.BytesIO(text)) for line in lines] == expected
    pieces = list(read_lines(Dripping(text)))
    assert [line for lines in pieces for line in lines] == expected
    assert len(pieces) == 3
