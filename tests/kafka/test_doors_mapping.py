"""A record keeps everything it says on its way between Kafka and a topic."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.errors import FormatError
from headwater.format.frame import FrameFlag
from headwater.format.kafka.mapping import to_kafka, to_kafka_as_it_is, to_native

HEADER_NAMES = st.one_of(st.sampled_from(["a", "b", "$node", "$json", "$x", ""]), st.text())
HEADER_VALUES = st.one_of(
    st.none(), st.binary(max_size=8), st.sampled_from([b"1", b'["a"]', b"text", b"\xff"])
)
VALUES = st.one_of(
    st.none(),
    st.binary(max_size=30),
    st.sampled_from([b"null", b" null ", b"{}", b'{"a": 1}\n', b'"x"', b"", b'"\\ud800"', b"[1,"]),
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
    assert again.key == key
    assert again.value == value
    assert sorted(again.headers, key=repr) == sorted(headers, key=repr) or again == (
        key, value, headers,
    )  # fmt: skip


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
