"""Tables of the Kafka protocol are total: every API has a handler, a refusal, a scope that fits."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.core import errors
from headwater.core.errors import HeadwaterError
from headwater.engine.kafka import errors as kafka_errors
from headwater.engine.kafka.errors import DamagedBatchError
from headwater.server.access.keys import Scope
from headwater.server.kafka.api_handlers import HANDLED
from headwater.server.kafka.refusals import CODES, REFUSALS, KafkaRequestError, code_of, refusal
from headwater.wire.kafka.apis import ADVERTISED, SUPPORTED, ApiKey, ErrorCode
from headwater.wire.kafka.codec import (
    decode_request,
    encode_response,
)
from headwater.wire.kafka.fields import FieldType, MessageField
from headwater.wire.kafka.messages import MESSAGES
from tests.rig.kafka_client_codec import decode_response, encode_request

VERSIONS = [
    (api, version)
    for api, (oldest, newest) in ADVERTISED.items()
    for version in range(oldest, newest + 1)
]
_VALUES: dict[FieldType, Any] = {
    FieldType.STRING: "name",
    FieldType.BYTES: b"x",
    FieldType.RECORDS: b"x",
    FieldType.INT32: 1,
}


def sample(fields: tuple[MessageField, ...], version: int) -> dict[str, Any]:
    """A value for each field, one row in each array."""
    found: dict[str, Any] = {}
    for field in fields:
        if not field.is_in(version) or field.tag is not None:
            continue
        value = sample(field.rows, version) if field.kind is None else _VALUES.get(field.kind)
        if value is None:
            continue
        found[field.name] = [value] if field.many else value
    return found


def test_every_api_has_a_handler_and_a_refusal() -> None:
    assert set(HANDLED) == set(REFUSALS) == set(SUPPORTED) == set(ApiKey)


@pytest.mark.parametrize(("api", "version"), VERSIONS)
def test_every_request_can_be_refused_in_words_of_its_version(api: ApiKey, version: int) -> None:
    asked = decode_request(
        api, version, encode_request(api, version, sample(MESSAGES[api].request, version))
    )
    answer = refusal(api, asked, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no")
    told = decode_response(api, version, encode_response(api, version, answer))
    assert "29" in str(told), told


def test_only_signing_in_is_open_to_strangers() -> None:
    assert {api for api, handled in HANDLED.items() if handled.is_open} == {
        ApiKey.API_VERSIONS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
    }


def test_whatever_changes_something_needs_more_than_reading() -> None:
    without = {api for api, handled in HANDLED.items() if not handled.scope & ~Scope.READ}
    assert without.isdisjoint(
        {
            ApiKey.PRODUCE,
            ApiKey.CREATE_TOPICS,
            ApiKey.DELETE_TOPICS,
            ApiKey.DELETE_RECORDS,
            ApiKey.ALTER_CONFIGS,
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            ApiKey.CREATE_PARTITIONS,
            ApiKey.DELETE_GROUPS,
            ApiKey.OFFSET_DELETE,
            ApiKey.INIT_PRODUCER_ID,
        }
    )


def test_every_error_of_ours_has_a_number() -> None:
    kinds = [
        kind
        for module in (errors, kafka_errors)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, HeadwaterError)
    ]
    named = {kind for kind, _ in CODES} | {kafka_errors.MemberRefusedError, DamagedBatchError}
    assert {kind for kind in kinds if kind.__module__ == kafka_errors.__name__} <= named
    for kind in kinds:
        assert any(issubclass(kind, known) for known, _ in CODES), kind
    assert code_of(KafkaRequestError(ErrorCode.NON_EMPTY_GROUP, "x")) is ErrorCode.NON_EMPTY_GROUP
    assert code_of(errors.OverloadedError("x")) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert code_of(errors.PoisonedError("x")) is ErrorCode.KAFKA_STORAGE_ERROR
