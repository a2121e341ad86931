"""Messages that carry records, or say where they are."""

from __future__ import annotations

from typing import Final

from headwater.wire.kafka.fields import FieldType, Message, many, one, row

PRODUCE: Final = Message(
    flexible_since=9,
    request=(
        one("transactional_id", FieldType.STRING, 3, null=3),
        one("acks", FieldType.INT16),
        one("timeout_ms", FieldType.INT32),
        many(
            "topic_data",
            (
                one("name", FieldType.STRING),
                many(
                    "partition_data",
                    (
                        one("index", FieldType.INT32),
                        one("records", FieldType.RECORDS, null=0),
                    ),
                ),
            ),
        ),
    ),
    response=(
        many(
            "responses",
            (
                one("name", FieldType.STRING),
                many(
                    "partition_responses",
                    (
                        one("index", FieldType.INT32),
                        one("error_code", FieldType.INT16),
                        one("base_offset", FieldType.INT64),
                        one("log_append_time_ms", FieldType.INT64, 2, default=-1),
                        one("log_start_offset", FieldType.INT64, 5, default=-1),
                        many(
                            "record_errors",
                            (
                                one("batch_index", FieldType.INT32),
                                one("batch_index_error_message", FieldType.STRING, null=8),
                            ),
                            8,
                        ),
                        one("error_message", FieldType.STRING, 8, null=8),
                    ),
                ),
            ),
        ),
        one("throttle_time_ms", FieldType.INT32, 1),
    ),
)

FETCH: Final = Message(
    flexible_since=12,
    request=(
        one("cluster_id", FieldType.STRING, 12, null=12, tag=0),
        one("replica_id", FieldType.INT32, default=-1),
        one("max_wait_ms", FieldType.INT32),
        one("min_bytes", FieldType.INT32),
        one("max_bytes", FieldType.INT32, 3, default=0x7FFFFFFF),
        one("isolation_level", FieldType.INT8, 4),
        one("session_id", FieldType.INT32, 7),
        one("session_epoch", FieldType.INT32, 7, default=-1),
        many(
            "topics",
            (
                one("topic", FieldType.STRING),
                many(
                    "partitions",
                    (
                        one("partition", FieldType.INT32),
                        one("current_leader_epoch", FieldType.INT32, 9, default=-1),
                        one("fetch_offset", FieldType.INT64),
                        one("last_fetched_epoch", FieldType.INT32, 12, default=-1),
                        one("log_start_offset", FieldType.INT64, 5, default=-1),
                        one("partition_max_bytes", FieldType.INT32),
                    ),
                ),
            ),
        ),
        many(
            "forgotten_topics_data",
            (one("topic", FieldType.STRING), many("partitions", FieldType.INT32)),
            7,
        ),
        one("rack_id", FieldType.STRING, 11),
    ),
    response=(
        one("throttle_time_ms", FieldType.INT32, 1),
        one("error_code", FieldType.INT16, 7),
        one("session_id", FieldType.INT32, 7),
        many(
            "responses",
            (
                one("topic", FieldType.STRING),
                many(
                    "partitions",
                    (
                        one("partition_index", FieldType.INT32),
                        one("error_code", FieldType.INT16),
                        one("high_watermark", FieldType.INT64),
                        one("last_stable_offset", FieldType.INT64, 4, default=-1),
                        one("log_start_offset", FieldType.INT64, 5, default=-1),
                        row(
                            "diverging_epoch",
                            (
                                one("epoch", FieldType.INT32, default=-1),
                                one("end_offset", FieldType.INT64, default=-1),
                            ),
                            12,
                            tag=0,
                        ),
                        row(
                            "current_leader",
                            (
                                one("leader_id", FieldType.INT32, default=-1),
                                one("leader_epoch", FieldType.INT32, default=-1),
                            ),
                            12,
                            tag=1,
                        ),
                        row(
                            "snapshot_id",
                            (
                                one("end_offset", FieldType.INT64, default=-1),
                                one("epoch", FieldType.INT32, default=-1),
                            ),
                            12,
                            tag=2,
                        ),
                        many(
                            "aborted_transactions",
                            (
                                one("producer_id", FieldType.INT64),
                                one("first_offset", FieldType.INT64),
                            ),
                            4,
                            null=4,
                        ),
                        one("preferred_read_replica", FieldType.INT32, 11, default=-1),
                        one("records", FieldType.RECORDS, null=0),
                    ),
                ),
            ),
        ),
    ),
)

LIST_OFFSETS: Final = Message(
    flexible_since=6,
    request=(
        one("replica_id", FieldType.INT32, default=-1),
        one("isolation_level", FieldType.INT8, 2),
        many(
            "topics",
            (
                one("name", FieldType.STRING),
                many(
                    "partitions",
                    (
                        one("partition_index", FieldType.INT32),
                        one("current_leader_epoch", FieldType.INT32, 4, default=-1),
                        one("timestamp", FieldType.INT64),
                    ),
                ),
            ),
        ),
    ),
    response=(
        one("throttle_time_ms", FieldType.INT32, 2),
        many(
            "topics",
            (
                one("name", FieldType.STRING),
                many(
                    "partitions",
                    (
                        one("partition_index", FieldType.INT32),
                        one("error_code", FieldType.INT16),
                        one("timestamp", FieldType.INT64, default=-1),
                        one("offset", FieldType.INT64, default=-1),
                        one("leader_epoch", FieldType.INT32, 4, default=-1),
                    ),
                ),
            ),
        ),
    ),
)

OFFSET_FOR_LEADER_EPOCH: Final = Message(
    flexible_since=4,
    request=(
        one("replica_id", FieldType.INT32, 3, default=-2),
        many(
            "topics",
            (
                one("topic", FieldType.STRING),
                many(
                    "partitions",
                    (
                        one("partition", FieldType.INT32),
                        one("current_leader_epoch", FieldType.INT32, 2, default=-1),
                        one("leader_epoch", FieldType.INT32),
                    ),
                ),
            ),
        ),
    ),
    response=(
        one("throttle_time_ms", FieldType.INT32, 2),
        many(
            "topics",
            (
                one("topic", FieldType.STRING),
                many(
                    "partitions",
                    (
                        one("error_code", FieldType.INT16),
                        one("partition", FieldType.INT32),
                        one("leader_epoch", FieldType.INT32, 1, default=-1),
                        one("end_offset", FieldType.INT64, default=-1),
                    ),
                ),
            ),
        ),
    ),
)

DELETE_RECORDS: Final = Message(
    flexible_since=2,
    request=(
        many(
            "topics",
            (
                one("name", FieldType.STRING),
                many(
                    "partitions",
                    (one("partition_index", FieldType.INT32), one("offset", FieldType.INT64)),
                ),
            ),
        ),
        one("timeout_ms", FieldType.INT32),
    ),
    response=(
        one("throttle_time_ms", FieldType.INT32),
        many(
            "topics",
            (
                one("name", FieldType.STRING),
                many(
                    "partitions",
                    (
                        one("partition_index", FieldType.INT32),
                        one("low_watermark", FieldType.INT64),
                        one("error_code", FieldType.INT16),
                    ),
                ),
            ),
        ),
    ),
)

INIT_PRODUCER_ID: Final = Message(
    flexible_since=2,
    request=(
        one("transactional_id", FieldType.STRING, null=0),
        one("transaction_timeout_ms", FieldType.INT32),
        one("producer_id", FieldType.INT64, 3, default=-1),
        one("producer_epoch", FieldType.INT16, 3, default=-1),
    ),
    response=(
        one("throttle_time_ms", FieldType.INT32),
        one("error_code", FieldType.INT16),
        one("producer_id", FieldType.INT64, default=-1),
        one("producer_epoch", FieldType.INT16),
    ),
)
