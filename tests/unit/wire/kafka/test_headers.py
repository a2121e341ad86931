"""What stands before requests and responses, and what is made of nonsense there."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.core.errors import InvariantError
from headwater.wire.kafka.apis import (
    ADVERTISED,
    SUPPORTED,
    ApiKey,
    ProtocolError,
    is_supported,
    known_api,
)
from headwater.wire.kafka.codec import (
    encode_response,
    read_request_header,
    request_frame,
    response_body_at,
    response_frame,
)
from headwater.wire.kafka.messages import MESSAGES
from tests.rig.kafka_client_codec import decode_response


def test_every_kind_of_request_has_versions_and_fields() -> None:
    assert set(SUPPORTED) == set(MESSAGES) == set(ADVERTISED) == set(ApiKey)


def test_old_produce_versions_are_advertised_but_not_supported() -> None:
    assert ADVERTISED[ApiKey.PRODUCE].oldest == 0
    assert not is_supported(ApiKey.PRODUCE, 2)
    assert is_supported(ApiKey.PRODUCE, 3)


def test_a_header_is_read_even_if_nobody_knows_the_request() -> None:
    frame = b"\x03\xe7\x00\x09\x00\x00\x00\x05\x00\x02me" + b"whatever"
    header = read_request_header(frame)
    assert header[:4] == (999, 9, 5, "me")
    assert known_api(header.api_key) is None


def test_a_version_from_the_future_has_a_readable_header() -> None:
    """So that a newer client can be told which versions there are."""
    frame = request_frame(ApiKey.API_VERSIONS, 9, 5, "new", {})[4:]
    assert read_request_header(frame)[:4] == (18, 9, 5, "new")


def test_a_client_without_a_name_is_none() -> None:
    frame = request_frame(ApiKey.METADATA, 9, 5, None, {})[4:]
    assert read_request_header(frame).client_id is None
    assert frame[read_request_header(frame).body_at :] == b"\x01\x01\x00\x00\x00"


def test_tagged_fields_of_a_header_are_passed_over() -> None:
    frame = request_frame(ApiKey.METADATA, 9, 5, "me", {})[4:]
    at = read_request_header(frame).body_at
    longer = frame[: at - 1] + b"\x02\x00\x03abc\x63\x00" + frame[at:]
    assert longer[read_request_header(longer).body_at :] == frame[at:]


@pytest.mark.parametrize("kept", range(13))
def test_a_header_that_is_cut_is_a_protocol_error(kept: int) -> None:
    frame = request_frame(ApiKey.METADATA, 9, 5, "me", {})[4:]
    with pytest.raises(ProtocolError):
        read_request_header(frame[:kept] if kept < 12 else frame[:12])


def test_tags_of_a_header_that_are_not_there_are_a_protocol_error() -> None:
    start = request_frame(ApiKey.METADATA, 9, 5, "me", {})[4:16]
    for tags in (b"\x01", b"\x01\x00", b"\x01\x00\x05abc", b"\xff\xff\xff\xff\x0f", b"\xff" * 9):
        with pytest.raises(ProtocolError):
            read_request_header(start + tags)


def test_the_answer_to_api_versions_has_the_old_header() -> None:
    frame = b"".join(response_frame(ApiKey.API_VERSIONS, 3, 6, {}))
    assert frame[4:8] == b"\x00\x00\x00\x06"
    assert frame[8:] == encode_response(ApiKey.API_VERSIONS, 3, {})
    assert response_body_at(ApiKey.API_VERSIONS, 3, frame[4:]) == (6, 4)
    assert response_body_at(ApiKey.METADATA, 9, b"\x00\x00\x00\x06\x00")[1] == 5


def test_record_batches_go_out_as_the_buffers_they_are() -> None:
    batches = [b"first batch", memoryview(b"second batch")]
    row = {"partition_index": 0, "records": batches}
    values = {"responses": [{"topic": "t", "partitions": [row, {**row, "records": b"third"}]}]}
    for version in range(4, 13):
        pieces = response_frame(ApiKey.FETCH, version, 1, values)
        assert any(piece is batches[0] for piece in pieces)
        assert any(piece is batches[1] for piece in pieces)
        frame = b"".join(pieces)
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        at = 4 + response_body_at(ApiKey.FETCH, version, frame[4:])[1]
        (topic,) = decode_response(ApiKey.FETCH, version, frame, at)["responses"]
        found = [bytes(each["records"]) for each in topic["partitions"]]
        assert found == [b"first batchsecond batch", b"third"]


def test_no_records_and_null_records_are_told_apart() -> None:
    for version in (4, 12):
        for records, wanted in ((None, None), (b"", b""), ([], b"")):
            row: dict[str, Any] = {"responses": [{"partitions": [{"records": records}]}]}
            written = encode_response(ApiKey.FETCH, version, row)
            found = decode_response(ApiKey.FETCH, version, written)
            assert found["responses"][0]["partitions"][0]["records"] == wanted


def test_mistakes_of_our_own_are_said_to_be_ours() -> None:
    with pytest.raises(InvariantError, match="trottle"):
        encode_response(ApiKey.HEARTBEAT, 1, {"trottle_time_ms": 1})
    with pytest.raises(InvariantError, match="fit"):
        encode_response(ApiKey.HEARTBEAT, 1, {"throttle_time_ms": 2**31})
    with pytest.raises(InvariantError, match="null"):
        encode_response(ApiKey.FIND_COORDINATOR, 1, {"host": None})
