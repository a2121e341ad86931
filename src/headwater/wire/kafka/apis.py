"""Which requests there are, which versions of each are answered, and which are advertised."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from headwater.core.errors import RequestError


class ProtocolError(RequestError):
    """Bytes that are no Kafka request. The server closes the connection; nothing was done."""


class ApiKey(IntEnum):
    """The kinds of request, by Kafka's own numbers."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    INCREMENTAL_ALTER_CONFIGS = 44
    OFFSET_DELETE = 47
    DESCRIBE_CLUSTER = 60


class Versions(NamedTuple):
    """From the oldest to the newest, both included."""

    oldest: int
    newest: int


SUPPORTED: Final[dict[ApiKey, Versions]] = {
    ApiKey.PRODUCE: Versions(3, 9),
    ApiKey.FETCH: Versions(4, 12),
    ApiKey.LIST_OFFSETS: Versions(1, 7),
    ApiKey.METADATA: Versions(0, 12),
    ApiKey.OFFSET_COMMIT: Versions(2, 9),
    ApiKey.OFFSET_FETCH: Versions(1, 9),
    ApiKey.FIND_COORDINATOR: Versions(0, 4),
    ApiKey.JOIN_GROUP: Versions(0, 9),
    ApiKey.HEARTBEAT: Versions(0, 4),
    ApiKey.LEAVE_GROUP: Versions(0, 5),
    ApiKey.SYNC_GROUP: Versions(0, 5),
    ApiKey.DESCRIBE_GROUPS: Versions(0, 6),
    ApiKey.LIST_GROUPS: Versions(0, 5),
    ApiKey.SASL_HANDSHAKE: Versions(0, 1),
    ApiKey.API_VERSIONS: Versions(0, 3),
    ApiKey.CREATE_TOPICS: Versions(0, 7),
    ApiKey.DELETE_TOPICS: Versions(0, 6),
    ApiKey.DELETE_RECORDS: Versions(0, 2),
    ApiKey.INIT_PRODUCER_ID: Versions(0, 4),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Versions(0, 4),
    ApiKey.DESCRIBE_CONFIGS: Versions(0, 4),
    ApiKey.ALTER_CONFIGS: Versions(0, 2),
    ApiKey.SASL_AUTHENTICATE: Versions(0, 2),
    ApiKey.CREATE_PARTITIONS: Versions(0, 3),
    ApiKey.DELETE_GROUPS: Versions(0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Versions(0, 1),
    ApiKey.OFFSET_DELETE: Versions(0, 0),
    ApiKey.DESCRIBE_CLUSTER: Versions(0, 2),
}

_OLD_PRODUCE: Final = {ApiKey.PRODUCE: Versions(0, SUPPORTED[ApiKey.PRODUCE].newest)}
"""librdkafka takes a broker without Produce 0 for one that knows no compression; these versions
are advertised, and answered with UNSUPPORTED_VERSION."""

ADVERTISED: Final[dict[ApiKey, Versions]] = SUPPORTED | _OLD_PRODUCE
"""What ApiVersions lists."""

_BY_NUMBER: Final[dict[int, ApiKey]] = {int(api): api for api in ApiKey}


def known_api(number: int) -> ApiKey | None:
    return _BY_NUMBER.get(number)


def is_supported(api: ApiKey, version: int) -> bool:
    oldest, newest = SUPPORTED[api]
    return oldest <= version <= newest
