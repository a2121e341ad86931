"""Answers to produces: compiled and by the table of fields, they are the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.errors import InvariantError
from headwater.native import compiled
from headwater.wire.kafka import codec
from headwater.wire.kafka.apis import ApiKey, ErrorCode
from headwater.wire.kafka.codec import response_frame
from tests.unit.native.twins import is_compiled, pure

pytestmark = is_compiled

versions = st.integers(3, 9)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
names = st.text(max_size=150)
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


every_version = pytest.mark.parametrize("version", range(3, 10))


def outcome(module: Any, twin: bool, function: Any, *arguments: Any) -> Any:
    """What it gives, or the kind of its refusal."""
    try:
        return pure(function, module, *arguments) if twin else function(*arguments)
    except InvariantError as error:
        return type(error), str(error)


def written_by_both(version: int, number: int, values: dict[str, Any]) -> bytes:
    arguments = ApiKey.PRODUCE, version, number, values
    found, wanted = (outcome(codec, twin, response_frame, *arguments) for twin in (False, True))
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
        kind, _ = outcome(codec, twin, response_frame, ApiKey.PRODUCE, 9, 1, values)
        assert kind is InvariantError
