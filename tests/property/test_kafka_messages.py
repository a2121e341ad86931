"""Kafka messages: there and back again, cut anywhere, and bytes that never were messages."""

from __future__ import annotations

import contextlib
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.wire.kafka import codec
from headwater.wire.kafka.apis import ApiKey, ProtocolError
from headwater.wire.kafka.codec import (
    decode_request,
    encode_response,
    read_request_header,
)
from tests.rig.kafka_client_codec import decode_response, encode_request
from tests.unit.wire.kafka.random_values import EVERY_VERSION, fields_of, fill, plain, with_defaults

which = st.sampled_from(EVERY_VERSION)
chances = st.randoms(use_true_random=False)
SIDES = {True: (encode_request, decode_request), False: (encode_response, decode_response)}


@given(which, st.booleans(), chances)
@settings(max_examples=120, deadline=None)
def test_a_message_comes_back_as_it_was(
    api_version: tuple[ApiKey, int], request_side: bool, chance: random.Random
) -> None:
    api, version = api_version
    encode, decode = SIDES[request_side]
    fields = fields_of(api, request=request_side)
    values = fill(fields, version, chance)
    written = encode(api, version, values)
    for buffer in (written, memoryview(written)):
        assert plain(decode(api, version, buffer)) == plain(with_defaults(fields, values))
    before = b"something before"
    assert plain(decode(api, version, before + written, len(before))) == plain(
        with_defaults(fields, values)
    )


@pytest.mark.parametrize("api", list(ApiKey), ids=lambda api: api.name.lower())
def test_a_message_cut_anywhere_is_a_protocol_error(api: ApiKey) -> None:
    for request_side, (encode, decode) in SIDES.items():
        for version in {version for each, version in EVERY_VERSION if each is api}:
            values = fill(fields_of(api, request=request_side), version, random.Random(version))
            written = encode(api, version, values)
            stops = range(len(written)) if len(written) < 200 else range(0, len(written), 41)
            for stop in stops:
                with pytest.raises(ProtocolError):
                    decode(api, version, written[:stop])


@given(which, st.booleans(), st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_bytes_by_chance_are_a_message_or_a_protocol_error(
    api_version: tuple[ApiKey, int], request_side: bool, noise: bytes
) -> None:
    decode = SIDES[request_side][1]
    try:
        found = decode(*api_version, noise)
    except ProtocolError:
        return
    assert set(found) == {field.name for field in fields_of(api_version[0], request=request_side)}


@given(which, chances, st.data())
@settings(max_examples=120, deadline=None)
def test_a_changed_byte_is_a_message_or_a_protocol_error(
    api_version: tuple[ApiKey, int], chance: random.Random, data: st.DataObject
) -> None:
    api, version = api_version
    written = bytearray(
        encode_request(api, version, fill(fields_of(api, request=True), version, chance))
    )
    if not written:
        return
    at = data.draw(st.integers(0, len(written) - 1))
    written[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ProtocolError):
        decode_request(api, version, bytes(written))


@given(st.binary(max_size=60))
@settings(max_examples=200, deadline=None)
def test_bytes_by_chance_have_a_header_or_a_protocol_error(noise: bytes) -> None:
    try:
        header = read_request_header(noise)
    except ProtocolError:
        return
    assert header.body_at <= len(noise)


def test_a_count_that_cannot_be_is_refused_at_once() -> None:
    for version, count in ((8, b"\x7f\xff\xff\xff"), (9, b"\xff\xff\xff\xff\x0f")):
        with pytest.raises(ProtocolError, match="rows"):
            decode_request(ApiKey.METADATA, version, count + bytes(1_000))
    for rows in (1_001, 300_000):
        with pytest.raises(ProtocolError, match=f"{rows} rows in 1000 bytes"):
            decode_request(ApiKey.METADATA, 8, rows.to_bytes(4, "big") + bytes(1_000))


def test_more_rows_than_are_taken_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "REQUEST_ROWS_MAX", 10)
    partitions = [{"partition": number} for number in range(5)]
    few = {"topics": [{"topic": "t", "partitions": partitions}]}
    many = {"topics": [{"topic": "t", "partitions": partitions}] * 2}
    for version in (4, 12):
        decode_request(ApiKey.FETCH, version, encode_request(ApiKey.FETCH, version, few))
        with pytest.raises(ProtocolError, match="rows"):
            decode_request(ApiKey.FETCH, version, encode_request(ApiKey.FETCH, version, many))


def test_unknown_tagged_fields_are_passed_over() -> None:
    written = encode_request(ApiKey.HEARTBEAT, 4, {"group_id": "g", "member_id": "m"})
    for tags in (b"\x01\x05\x00", b"\x02\x05\x03abc\xff\x7f\x01z"):
        longer = written[:-1] + tags
        assert decode_request(ApiKey.HEARTBEAT, 4, longer)["member_id"] == "m"
    for tags in (b"\x01\x05\x04abc", b"\x02\x05\x00", b"\x80\x80\x80\x80\x80\x01"):
        with pytest.raises(ProtocolError):
            decode_request(ApiKey.HEARTBEAT, 4, written[:-1] + tags)


def test_a_text_that_is_no_text_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="UTF-8"):
        decode_request(ApiKey.SASL_HANDSHAKE, 1, b"\x00\x02\xff\xfe")


def test_null_where_it_may_not_be_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError):
        decode_request(ApiKey.SASL_HANDSHAKE, 1, b"\xff\xff")
    with pytest.raises(ProtocolError):
        decode_request(ApiKey.HEARTBEAT, 4, b"\x00")
    assert decode_request(ApiKey.METADATA, 1, b"\xff\xff\xff\xff")["topics"] is None
    assert decode_request(ApiKey.METADATA, 1, b"\x00\x00\x00\x00")["topics"] == []
