"""Every message we know, byte for byte against a client library nobody here wrote."""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest

from headwater.wire.kafka.apis import ApiKey
from headwater.wire.kafka.codec import (
    decode_request,
    encode_response,
    read_request_header,
    request_frame,
    response_frame,
)
from tests.kafka.kafka_python import message_classes
from tests.rig.kafka_client_codec import decode_response, encode_request
from tests.unit.wire.kafka.random_values import EVERY_VERSION, fields_of, fill, plain, with_defaults

ROUNDS = 4
OPERATIONS = "authorized_operations"


def _agree(told: Any, ours: Any) -> bool:
    """Whether they read what we wrote, under the same names.

    They make a set of the operations somebody may do, under another name. A row of tagged
    fields that was not sent is none to them, and its defaults to us.
    """
    match told:
        case dict():
            return all(
                _agree(value, ours[name])
                for name, value in told.items()
                if name != OPERATIONS and (value is not None or not isinstance(ours[name], dict))
            )
        case list():
            return len(told) == len(ours) and all(map(_agree, told, ours))
        case uuid.UUID():
            return bool(told.bytes == ours)
        case _:
            return bool(told == ours)


@pytest.mark.parametrize("request_side", [True, False], ids=["requests", "responses"])
@pytest.mark.parametrize("api", list(ApiKey), ids=lambda api: api.name.lower())
def test_their_bytes_are_our_bytes_in_every_version(api: ApiKey, request_side: bool) -> None:
    kind = message_classes()[int(api), request_side]
    encode, decode = (
        (encode_request, decode_request) if request_side else (encode_response, decode_response)
    )
    fields = fields_of(api, request=request_side)
    for version in (version for each, version in EVERY_VERSION if each is api):
        for round_number in range(ROUNDS):
            values = fill(fields, version, random.Random(f"{api} {version} {round_number}"))
            if api is ApiKey.API_VERSIONS and not request_side:
                values["error_code"] = 0  # they take any other for an answer in version 0
            ours = encode(api, version, values)
            read = kind.decode(ours, version=version)
            wanted = plain(with_defaults(fields, values))
            assert _agree(read.to_dict(json=False), wanted), (api, version)
            read._header = None
            assert bytes(read.encode()) == ours, (api, version)
            assert plain(decode(api, version, ours)) == wanted


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
def test_headers_of_requests_are_read_as_they_write_them(api: ApiKey, version: int) -> None:
    kind = message_classes()[int(api), True]
    message = kind(version=version)
    message.with_header(correlation_id=77, client_id="a client")
    frame = bytes(message.encode(header=True))
    header = read_request_header(frame)
    assert header[:4] == (int(api), version, 77, "a client")
    assert frame[header.body_at :] == bytes(kind(version=version).encode())
    values = decode_request(api, version, frame, header.body_at)
    ours = request_frame(api, version, 77, "a client", values)
    assert ours == len(frame).to_bytes(4, "big") + frame


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
def test_they_read_the_headers_of_our_responses(api: ApiKey, version: int) -> None:
    kind = message_classes()[int(api), False]
    frame = b"".join(response_frame(api, version, 12345, {}))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    read = kind.decode(frame[4:], version=version, header=True)
    assert read.header.correlation_id == 12345
