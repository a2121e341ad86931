"""Which requests there are, which versions of each are answered, which are advertised, and the
numbers of the errors they answer with."""

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


class ErrorCode(IntEnum):
    """Kafka's own numbers and names."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103
    UNSUPPORTED_ENDPOINT_TYPE = 115
