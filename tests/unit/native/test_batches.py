"""Produce requests and their answers: compiled and by the table of fields, they are the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.errors import InvariantError
from headwater.native import compiled
from headwater.wire.kafka import codec, headers
from headwater.wire.kafka.apis import ApiKey
from headwater.wire.kafka.codec import decode_request, encode_request
from headwater.wire.kafka.error_codes import ErrorCode
from headwater.wire.kafka.errors import ProtocolError
from headwater.wire.kafka.headers import response_frame
from tests.unit.native.twins import is_compiled, pure

pytestmark = is_compiled

versions = st.integers(3, 9)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
names = st.text(max_size=150)
requests = st.fixed_dictionaries(
    {
        "transactional_id": st.none() | st.text(max_size=5),
        "acks": st.integers(-(2**15), 2**15 - 1),
        "timeout_ms": int32s,
        "topic_data": st.lists(
            st.fixed_dictionaries(
                {
                    "name": names,
                    "partition_data": st.lists(
                        st.fixed_dictionaries(
                            {"index": int32s, "records": st.none() | st.binary(max_size=300)}
                        ),
                        max_size=2,
                    ),
                }
            ),
            max_size=2,
        ),
    }
)
plain_requests = st.builds(
    lambda acks, name, index, records: {
        "transactional_id": None,
        "acks": acks,
        "timeout_ms": 30_000,
        "topic_data": [{"name": name, "partition_data": [{"index": index, "records": records}]}],
    },
    st.integers(-1, 1),
    names,
    int32s,
    st.binary(max_size=300),
)
rows = st.fixed_dictionaries(
    {"index": int32s, "error_code": st.sampled_from(ErrorCode), "base_offset": int64s},
    optional={
        "log_append_time_ms": int64s,
        "log_start_offset": int64s,
        "error_message": st.none() | st.text(max_size=20),
    },
)
plain_rows = st.fixed_dictionaries(
    {"index": int32s, "error_code": st.sampled_from(ErrorCode), "base_offset": int64s},
    optional={"log_append_time_ms": int64s, "log_start_offset": int64s},
)


def answers(rows: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    topics = st.fixed_dictionaries({"name": names, "partition_responses": st.lists(rows)})
    return st.fixed_dictionaries(
        {"responses": st.lists(topics, max_size=3), "throttle_time_ms": int32s}
    )


ONE_REQUEST: dict[str, Any] = {
    "transactional_id": None,
    "acks": -1,
    "timeout_ms": 30_000,
    "topic_data": [{"name": "orders", "partition_data": [{"index": 3, "records": b"x" * 200}]}],
}
every_version = pytest.mark.parametrize("version", range(3, 10))


def outcome(module: Any, twin: bool, function: Any, *arguments: Any) -> Any:
    """What it gives, or the kind of its refusal."""
    try:
        return pure(function, module, *arguments) if twin else function(*arguments)
    except (ProtocolError, InvariantError) as error:
        return type(error), str(error)


def read_by_both(version: int, body: bytes, at: int = 0) -> Any:
    view = memoryview(body)
    found, wanted = (
        outcome(codec, twin, decode_request, ApiKey.PRODUCE, version, view, at)
        for twin in (False, True)
    )
    assert found == wanted
    return found


@given(versions, requests | plain_requests, st.binary(max_size=20))
def test_a_produce_is_read_alike_with_and_without_the_compiled_reader(
    version: int, values: dict[str, Any], before: bytes
) -> None:
    body = before + encode_request(ApiKey.PRODUCE, version, values)
    assert read_by_both(version, body, len(before)) == values


@given(versions, plain_requests, st.data())
def test_a_damaged_produce_is_read_or_refused_alike(
    version: int, values: dict[str, Any], data: st.DataObject
) -> None:
    body = bytearray(encode_request(ApiKey.PRODUCE, version, values))
    for _ in range(data.draw(st.integers(0, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    read_by_both(version, bytes(body[: data.draw(st.integers(0, len(body)))]))


@given(versions, st.binary(max_size=60))
def test_noise_is_read_or_refused_alike(version: int, body: bytes) -> None:
    read_by_both(version, body)


@every_version
def test_the_compiled_reader_reads_what_producers_send(version: int) -> None:
    native = compiled("batches")
    assert native is not None
    body = encode_request(ApiKey.PRODUCE, version, ONE_REQUEST)
    assert native.read_produce(body, version, 0) == ONE_REQUEST


@every_version
def test_a_produce_that_is_cut_off_or_changed_anywhere_is_read_or_refused_alike(
    version: int,
) -> None:
    body = encode_request(ApiKey.PRODUCE, version, ONE_REQUEST)
    for at in range(len(body)):
        read_by_both(version, body[:at])
        for byte in (0, 1, 2, 0x7F, 0x80, 0xFF):
            read_by_both(version, body[:at] + bytes([byte]) + body[at + 1 :])


def written_by_both(version: int, number: int, values: dict[str, Any]) -> bytes:
    arguments = ApiKey.PRODUCE, version, number, values
    found, wanted = (outcome(headers, twin, response_frame, *arguments) for twin in (False, True))
    assert b"".join(found) == b"".join(wanted)
    return b"".join(found)


@every_version
@given(number=int32s, values=answers(plain_rows))
def test_the_answer_to_a_produce_has_the_same_bytes(
    version: int, number: int, values: dict[str, Any]
) -> None:
    native = compiled("batches")
    assert native is not None
    assert native.write_produced(version, number, values) == written_by_both(
        version, number, values
    )


@given(versions, int32s, answers(rows))
def test_an_answer_with_errors_has_the_same_bytes(
    version: int, number: int, values: dict[str, Any]
) -> None:
    written_by_both(version, number, values)


@every_version
@pytest.mark.parametrize("count", [0, 1, 126, 127, 128, 300])
def test_lengths_of_one_byte_and_of_two_are_written_alike(version: int, count: int) -> None:
    row = {"index": 1, "error_code": 0, "base_offset": 9}
    named = [{"name": "n" * size, "partition_responses": [row]} for size in range(count)]
    many = [{"name": "orders", "partition_responses": [row] * count}]
    for topics in (named, many):
        written_by_both(version, 7, {"responses": topics, "throttle_time_ms": 0})


@pytest.mark.parametrize(
    "row",
    [
        {"index": 2**31, "error_code": 0, "base_offset": 0},
        {"index": 0, "error_code": 0, "base_offset": 2**63},
        {"index": 0, "error_code": 0, "base_offset": 0, "colour": 1},
        {"index": None, "error_code": 0, "base_offset": 0},
    ],
)
def test_an_answer_that_cannot_be_is_refused_by_both(row: dict[str, Any]) -> None:
    topics = [{"name": "orders", "partition_responses": [row]}]
    values = {"responses": topics, "throttle_time_ms": 0}
    for twin in (False, True):
        kind, _ = outcome(headers, twin, response_frame, ApiKey.PRODUCE, 9, 1, values)
        assert kind is InvariantError
