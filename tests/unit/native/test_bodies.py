"""What is read from the bodies of writes is what the decoder of requests would read."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater.core import limits
from headwater.core.errors import HeadwaterError
from headwater.native import compiled
from headwater.server.http.write_handler import encode_request
from headwater.wire.requests import WriteRequest, decode_request
from tests.unit.native.twins import is_compiled

RECORD_BYTES_MAX = 4_096
RECORDS_MAX = 100
pytestmark = is_compiled

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=True)
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
spaces = st.text(" \t\r\n", max_size=3)


def read(body: bytes | bytearray) -> list[tuple[bytes, bytes]] | None:
    native = compiled("bodies")
    assert native is not None
    (count,), datas, tags = native.plain_records(
        [body], RECORDS_MAX, RECORD_BYTES_MAX, limits.TAG_BYTES_MAX
    )
    assert len(datas) == len(tags) == count
    return list(zip(datas, tags, strict=True)) if count else None


def by_the_decoder(body: bytes) -> list[tuple[bytes, bytes]]:
    """What the twin takes; raises what it refuses."""
    body.decode()
    request = decode_request(body, WriteRequest)
    records = encode_request(request, RECORD_BYTES_MAX)
    assert (any(records.nodes), records.deliver_at) == (False, None)
    assert (request.idempotency_key, request.expect_head_seq, request.config) == (None, None, None)
    return list(zip(records.datas, records.tags, strict=True))


def holds(body: bytes) -> bool:
    """Taken as the decoder takes it, or left to that. True when it was taken."""
    found = read(body)
    assert read(bytearray(body)) == found
    if found is not None:
        assert found == by_the_decoder(body)
    return found is not None


@given(values, st.none() | st.text(max_size=300), spaces, st.booleans(), st.booleans())
@example({"a": [1, -2.5, True, None, "x"]}, "paid", " ", False, False)
def test_whatever_a_client_prints_is_taken_as_the_decoder_takes_it(
    data: Any, tag: str | None, space: str, tag_first: bool, escaped: bool
) -> None:
    fields = [f'"data"{space}:{space}{json.dumps(data, ensure_ascii=escaped)}']
    if tag is not None:
        fields.insert(
            0 if tag_first else 1, f'"tag":{space}{json.dumps(tag, ensure_ascii=escaped)}'
        )
    inner = f"{space},{space}".join(fields)
    text = f'{space}{{"records"{space}:{space}[{space}{{{space}{inner}{space}}}]}}{space}'
    holds(text.encode("utf-8", "surrogatepass"))


@given(st.binary(max_size=60), st.integers(0, 60), st.integers(0, 10))
def test_a_body_with_any_bytes_changed_is_taken_only_if_the_decoder_takes_it(
    noise: bytes, at: int, cut: int
) -> None:
    good = b'{"records":[{"data":{"a":[1,"\\u00e9",true]},"tag":"t"},{"data":2}]}'
    holds(good[:at] + noise + good[at + cut :])


@pytest.mark.parametrize("length", range(1, 26))
def test_every_byte_of_a_string_is_looked_at_wherever_it_stands(length: int) -> None:
    """Strings are scanned eight bytes at a time."""
    special = [bytes([number]) for number in (*range(36), 0x5B, 0x5C, 0x5D, 0x7F, 0x80, 0xA2, 0xFF)]
    for at in range(length):
        for each in (*special, "\u00e9".encode(), b"\\n", b"\\u00e9"):
            text = (b"x" * at + each).ljust(length, b"y")
            body = b'{"records":[{"data":"%b"}]}' % text
            is_plain = each in (b" ", b"!", b"#", b"[", b"]", b"\x7f") or len(each) > 1
            assert holds(body) is is_plain, body


@given(st.lists(st.tuples(values, st.none() | st.text(max_size=5)), max_size=8), spaces)
def test_each_of_several_records_is_taken_as_the_decoder_takes_it(
    records: list[tuple[Any, str | None]], space: str
) -> None:
    texts = [
        json.dumps({"data": data} if tag is None else {"data": data, "tag": tag})
        for data, tag in records
    ]
    holds(f'{{"records":[{f"{space},{space}".join(texts)}]}}'.encode())


@given(st.text('{}[]",:\\ \t\n0123456789.-+eEtrufalsnx\u00e9', max_size=40))
def test_no_payload_is_taken_that_the_decoder_refuses(payload: str) -> None:
    holds(b'{"records":[{"data":%b}]}' % payload.encode())


@pytest.mark.parametrize(
    ("body", "records"),
    [
        (b'{"records":[{"data":1}]}', [(b"1", b"")]),
        (b'{"records":[{"data":{"p":"x"}}]}', [(b'{"p":"x"}', b"")]),
        (b' { "records" : [ { "data" : [ 1 , 2 ] , "tag" : "a b" } ] } ', [(b"[ 1 , 2 ]", b"a b")]),
        (b'{"records":[{"tag":"t","data":"\\u00e9\\n"}]}', [(b'"\\u00e9\\n"', b"t")]),
        ('{"records":[{"data":"Gruß","tag":"ä"}]}'.encode(), [('"Gruß"'.encode(), "ä".encode())]),
        (b'{"records":[{"data":-0.5}]}', [(b"-0.5", b"")]),
        (b'{"records":[{"data":{}}]}', [(b"{}", b"")]),
        (b'{"records":[{"data":[[],[{}]]}]}', [(b"[[],[{}]]", b"")]),
        (
            b'{"records":[{"data":1},{"data":[2],"tag":"t"} , {"data":{}}]}',
            [(b"1", b""), (b"[2]", b"t"), (b"{}", b"")],
        ),
    ],
)
def test_plain_bodies_are_really_taken(body: bytes, records: list[tuple[bytes, bytes]]) -> None:
    assert read(body) == records == by_the_decoder(body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b'{"records":[]}',
        b'{"records":[{}]}',
        b'{"records":[{"data":1},{"data":2,"node":"n"}]}',
        b'{"records":[{"data":1},]}',
        b'{"records":[{"data":1}{"data":2}]}',
        b'{"records":[{"data":1},{}]}',
        b'{"records":[%b]}' % b",".join([b'{"data":1}'] * (RECORDS_MAX + 1)),
        b'{"records":[{"data":1}],"node":"n"}',
        b'{"records":[{"data":1,"meta":{}}]}',
        b'{"records":[{"data":1,"data":2}]}',
        b'{"records":[{"data":1,"tag":""}]}',
        b'{"records":[{"data":1,"tag":null}]}',
        b'{"records":[{"data":1,"tag":"\\u0041"}]}',
        b'{"records":[{"data":"\\ud800"}]}',
        b'{"records":[{"data":1}]}x',
        b'{"records":[{"data":1}]',
        b'{"records":[{"data":01}]}',
        b'{"records":[{"data":"\x1f"}]}',
        b'{"records":[{"data":"\xff"}]}',
        b'{"records":[{"data":NaN}]}',
        b'{"records":[{"data":[1,]}]}',
        b'{"records":[{"data":{"a"}}]}',
        b'{"records":[{"data":%b}]}' % (b"[" * 100 + b"]" * 100),
        b'{"records":[{"data":"%b"}]}' % (b"x" * RECORD_BYTES_MAX),
        b'{"records":[{"data":1,"tag":"%b"}]}' % (b"x" * (limits.TAG_BYTES_MAX + 1)),
    ],
)
def test_anything_unusual_is_left_to_the_decoder(body: bytes) -> None:
    assert read(body) is None


def test_one_that_is_not_plain_is_left_to_the_decoder_alone() -> None:
    native = compiled("bodies")
    assert native is not None
    good, tagged = b'{"records":[{"data":1}]}', b'{"records":[{"data":2,"tag":"t"},{"data":3}]}'
    spoilt = b'{"records":[{"data":4},{"data":5},{"data":6]}'
    read_all = functools.partial(
        native.plain_records, records_max=100, data_bytes_max=100, tag_bytes_max=100
    )
    both = [1, 2], [b"1", b"2", b"3"], [b"", b"t", b""]
    assert read_all([good, tagged]) == both
    assert read_all([good, b"{}", tagged]) == ([1, 0, 2], *both[1:])
    assert read_all([good, spoilt, tagged]) == ([1, 0, 2], *both[1:])
    assert read_all([bytearray(good), tagged]) == both
    assert read_all([memoryview(good), tagged]) == ([0, 2], [b"2", b"3"], [b"t", b""])
    assert read_all([]) == ([], [], [])


def test_a_prefix_of_a_body_is_never_taken() -> None:
    good = b'{"records":[{"data":{"a":[1,"x",true]},"tag":"t"},{"data":1},{"data":"x"}]}'
    assert read(good) is not None
    for length in range(len(good)):
        assert read(good[:length]) is None
        with pytest.raises(HeadwaterError):
            by_the_decoder(good[:length])
