"""The same against a second library, whose classes were written by hand, one a version."""

from __future__ import annotations

import importlib
import pkgutil
import random
from collections.abc import Iterator
from functools import cache
from io import BytesIO
from typing import Any

import aiokafka.protocol
import pytest
from aiokafka.protocol.api import RequestStruct, Response

from headwater.wire.kafka.apis import ApiKey, known_api
from headwater.wire.kafka.codec import encode_response
from tests.rig.kafka_client_codec import encode_request
from tests.unit.wire.kafka.random_values import EVERY_VERSION, fields_of, fill

# They wrote an epoch of eight bytes, and never send these versions.
WRONG_THERE = {(ApiKey.LIST_OFFSETS, 4, True), (ApiKey.LIST_OFFSETS, 5, True)}


def _all_below(kind: Any) -> Iterator[Any]:
    for each in kind.__subclasses__():
        yield each
        yield from _all_below(each)


@cache
def theirs() -> dict[tuple[ApiKey, int, bool], Any]:
    for module in pkgutil.iter_modules(aiokafka.protocol.__path__):
        importlib.import_module(f"aiokafka.protocol.{module.name}")
    return {
        (api, each.API_VERSION, base is RequestStruct): each
        for base in (RequestStruct, Response)
        for each in _all_below(base)
        if (api := known_api(each.API_KEY)) is not None
    }


@pytest.mark.parametrize("request_side", [True, False], ids=["requests", "responses"])
@pytest.mark.parametrize("api", list(ApiKey), ids=lambda api: api.name.lower())
def test_what_we_write_they_read_and_write_again(api: ApiKey, request_side: bool) -> None:
    encode = encode_request if request_side else encode_response
    for version in (version for each, version in EVERY_VERSION if each is api):
        kind = theirs().get((api, version, request_side))
        if kind is None or (api, version, request_side) in WRONG_THERE:
            continue
        values = fill(
            fields_of(api, request=request_side), version, random.Random(f"{api} {version}")
        )
        ours = encode(api, version, values)
        stream = BytesIO(ours)
        read = kind.decode(stream)
        assert stream.read() == b"", (api, version)
        assert read.encode() == ours, (api, version)


def test_they_know_enough_to_be_asked() -> None:
    known = theirs().keys() & {(*each, side) for each in EVERY_VERSION for side in (True, False)}
    assert len(known) > 100
