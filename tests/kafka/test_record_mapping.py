"""A record keeps everything it says on its way between Kafka and a topic."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.errors import FormatError, InvalidPayloadError
from headwater.core.records import Record
from headwater.format.frame import FrameFlag
from headwater.format.kafka.mapping import is_json, to_kafka, to_kafka_as_it_is, to_native

HEADER_NAMES = st.one_of(st.sampled_from(["a", "b", "$node", "$json", "$x", ""]), st.text())
HEADER_VALUES = st.one_of(
    st.none(),
    st.binary(max_size=8),
    st.sampled_from(
        [b"1", b" 1", b'["a"]', b'["b","a"]', b"[]", b"null", b'"q"', b"text", b"\xff"]
    ),
)
VALUES = st.one_of(
    st.none(),
    st.binary(max_size=30),
    st.sampled_from([b"null", b" null ", b"{}", b'{"a": 1}\n', b'"x"', b"", b'"\\ud800"', b"[1,"]),
    st.sampled_from([b"1e999", b"[-1E+400]", b"1" * 5_000, b"0" + b" " * 2_000, b"1e308"]),
)
KEYS = st.one_of(st.none(), st.binary(max_size=300), st.text(max_size=300).map(str.encode))


@given(KEYS, VALUES, st.lists(st.tuples(HEADER_NAMES, HEADER_VALUES), max_size=4))
def test_a_kafka_record_comes_back_as_it_was(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    flags, node, tag, data, meta = to_native(key, value, headers)
    msgspec.json.decode(data)
    assert meta is None or isinstance(msgspec.json.decode(meta), dict)
    assert bool(flags & FrameFlag.HAS_META) == (meta is not None)
    again = to_kafka(
        tag if flags & FrameFlag.HAS_TAG else None,
        node if flags & FrameFlag.HAS_NODE else None,
        data,
        meta,
    )
    assert again == (key, value, headers)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
NAMES = st.text(max_size=6).filter(lambda name: not name.startswith("$"))


@given(
    st.none() | st.text(max_size=60),
    st.none() | st.text(min_size=1, max_size=20),
    JSON,
    st.none() | st.dictionaries(NAMES, JSON, min_size=1, max_size=4),
)
def test_a_record_of_a_topic_comes_back_as_it_was(
    tag: str | None, node: str | None, data: Any, meta: dict[str, Any] | None
) -> None:
    encoded = msgspec.json.encode(data)
    fields = to_kafka(
        None if tag is None else tag.encode(),
        None if node is None else node.encode(),
        encoded,
        None if meta is None else msgspec.json.encode(meta),
    )
    flags, node_again, tag_again, data_again, meta_again = to_native(*fields)
    assert data_again == encoded
    assert (tag_again.decode() if flags & FrameFlag.HAS_TAG else None) == tag
    assert (node_again.decode() if flags & FrameFlag.HAS_NODE else None) == node
    assert (json.loads(meta_again) if meta_again else None) == meta


@pytest.mark.parametrize(
    ("key", "value", "headers", "tag", "data", "meta"),
    [
        (b"k", b'{"a": 1}', [], b"k", b'{"a": 1}', None),
        (None, None, [], None, b"null", None),
        (b"", b"1", [], b"", b"1", None),
        (b"\xff", b"1", [], b"/w==", b"1", {"$key_encoding": "base64"}),
        (b"k" * 257, b"1", [], None, b"1", {"$key": "k" * 257}),
        (None, b"plain", [], None, b'"cGxhaW4="', {"$encoding": "base64"}),
        (None, b"null", [], None, b"null", {"$encoding": "json"}),
        (None, b"1", [("h", b"v"), ("n", None)], None, b"1", {"h": "v", "n": None}),
        (None, b"1", [("h", b"5"), ("$json", b'["h"]')], None, b"1", {"h": 5}),
        (None, b"1", [("$json", b'["h"]'), ("h", b"5")], None, b"1",
         {"$headers": [["$json", "WyJoIl0="], ["h", "NQ=="]]}),
        (None, b"1", [("h", b"5"), ("$json", b"[]")], None, b"1",
         {"$headers": [["h", "NQ=="], ["$json", "W10="]]}),
        (None, b"1", [("$node", b"n"), ("h", b"5")], None, b"1",
         {"$headers": [["$node", "bg=="], ["h", "NQ=="]]}),
        (None, b"1e999", [], None, b'"MWU5OTk="', {"$encoding": "base64"}),
        (None, b"1", [("h", b"a"), ("h", b"b")], None, b"1",
         {"$headers": [["h", "YQ=="], ["h", "Yg=="]]}),
        (None, b"1", [("h", b"\xff")], None, b"1", {"$headers": [["h", "/w=="]]}),
    ],
)  # fmt: skip
def test_each_rule_of_the_mapping_holds(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    tag: bytes | None,
    data: bytes,
    meta: dict[str, Any] | None,
) -> None:
    found = to_native(key, value, headers)
    assert (found.tag if found.flags & FrameFlag.HAS_TAG else None) == tag
    assert found.data == data
    assert (json.loads(found.meta) if found.meta else None) == meta
    assert to_kafka(tag, None, data, found.meta) == (key, value, headers)


@pytest.mark.parametrize(
    ("tag", "data", "meta"),
    [
        (None, b'"no base64!"', b'{"$encoding":"base64"}'),
        (None, b"5", b'{"$encoding":"base64"}'),
        (None, b"5", b'{"$encoding":"json"}'),
        (None, b"5", b'{"$encoding":7}'),
        (None, b"5", b'{"$key_encoding":"base64"}'),
        (b"t", b"5", b'{"$key_encoding":"hex"}'),
        (b"t", b"5", b'{"$key":"long"}'),
        (b"!", b"5", b'{"$key_encoding":"base64"}'),
        (None, b"5", b'{"$headers":{"a":1}}'),
        (None, b"5", b'{"$headers":[["a","?"]]}'),
        (None, b"5", b'{"$other":1}'),
    ],
)
def test_meta_that_contradicts_its_record_is_refused_and_when_stored_read_literally(
    tag: bytes | None, data: bytes, meta: bytes
) -> None:
    with pytest.raises(FormatError):
        to_kafka(tag, None, data, meta)
    fields = to_kafka_as_it_is(tag, None, data, meta)
    assert (fields.key, fields.value) == (tag, data)
    assert [name for name, _ in fields.headers][:1] == list(json.loads(meta))


LONG = b" " * 2_000


@pytest.mark.parametrize(
    ("value", "is_one"),
    [
        (b"1e999", False),
        (b"[1, -1E+400]", False),
        (b"1e308", True),
        (b"1e-999", True),
        (b"1" * 4_300, True),
        (b"1" * 4_301, False),
        (b"1" * 250 + b"e99", False),
        (b"9" * 309 + b".5", False),
        (b'{"of text": "1e999"}', True),
        (b'{"quoted \\"": "1e999", "a": 0e999}', True),
        (b'{"quoted \\"": "1e999", "a": 1e999}', False),
        (b'{"a": 1e999, "a": 1}', False),
        (b'"\\\\",1e999', False),
        (b'["\\\\",1e999]', False),
    ],
)
def test_numbers_that_no_reader_can_hold_make_a_value_no_json(value: bytes, is_one: bool) -> None:
    assert is_json(value) == is_one
    assert is_json(value + LONG) == is_one
    found = to_native(None, value + LONG, [])
    assert (found.meta is None) == is_one
    msgspec.json.decode(found.data)


def test_data_that_cannot_be_a_value_is_told_with_its_seq_and_can_be_had_as_bytes() -> None:
    record = Record(7, 0, None, None, b"1e999", b'{"a":1e999}')
    for field in ("data", "meta"):
        with pytest.raises(InvalidPayloadError, match=f"seq 7: {field} .* {field}_json"):
            getattr(record, field)
    assert record.data_json == b"1e999"
