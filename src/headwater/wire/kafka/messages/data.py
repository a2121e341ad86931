"""Messages that carry records, or tell where they are."""

from __future__ import annotations

from typing import Final

from headwater.wire.kafka.fields import Kind, Message, many, one, row

PRODUCE: Final = Message(
    flexible_since=9,
    request=(
        one("transactional_id", Kind.STRING, 3, null=3),
        one("acks", Kind.INT16),
        one("timeout_ms", Kind.INT32),
        many(
            "topic_data",
            (
                one("name", Kind.STRING),
                many(
                    "partition_data",
                    (
                        one("index", Kind.INT32),
                        one("records", Kind.RECORDS, null=0),
                    ),
                ),
            ),
        ),
    ),
    response=(
        many(
            "responses",
            (
                one("name", Kind.STRING),
                many(
                    "partition_responses",
                    (
                        one("index", Kind.INT32),
                        one("error_code", Kind.INT16),
                        one("base_offset", Kind.INT64),
                        one("log_append_time_ms", Kind.INT64, 2, default=-1),
                        one("log_start_offset", Kind.INT64, 5, default=-1),
                        many(
                            "record_errors",
                            (
                                one("batch_index", Kind.INT32),
                                one("batch_index_error_message", Kind.STRING, null=8),
                            ),
                            8,
                        ),
                        one("error_message", Kind.STRING, 8, null=8),
                    ),
                ),
            ),
        ),
        one("throttle_time_ms", Kind.INT32, 1),
    ),
)

FETCH: Final = Message(
    flexible_since=12,
    request=(
        one("cluster_id", Kind.STRING, 12, null=12, tag=0),
        one("replica_id", Kind.INT32, default=-1),
        one("max_wait_ms", Kind.INT32),
        one("min_bytes", Kind.INT32),
        one("max_bytes", Kind.INT32, 3, default=0x7FFFFFFF),
        one("isolation_level", Kind.INT8, 4),
        one("session_id", Kind.INT32, 7),
        one("session_epoch", Kind.INT32, 7, default=-1),
        many(
            "topics",
            (
                one("topic", Kind.STRING),
                many(
                    "partitions",
                    (
                        one("partition", Kind.INT32),
                        one("current_leader_epoch", Kind.INT32, 9, default=-1),
                        one("fetch_offset", Kind.INT64),
                        one("last_fetched_epoch", Kind.INT32, 12, default=-1),
                        one("log_start_offset", Kind.INT64, 5, default=-1),
                        one("partition_max_bytes", Kind.INT32),
                    ),
                ),
            ),
        ),
        many(
            "forgotten_topics_data",
            (one("topic", Kind.STRING), many("partitions", Kind.INT32)),
            7,
        ),
        one("rack_id", Kind.STRING, 11),
    ),
    response=(
        one("throttle_time_ms", Kind.INT32, 1),
        one("error_code", Kind.INT16, 7),
        one("session_id", Kind.INT32, 7),
        many(
            "responses",
            (
                one("topic", Kind.STRING),
                many(
                    "partitions",
                    (
                        one("partition_index", Kind.INT32),
                        one("error_code", Kind.INT16),
                        one("high_watermark", Kind.INT64),
                        one("last_stable_offset", Kind.INT64, 4, default=-1),
                        one("log_start_offset", Kind.INT64, 5, default=-1),
                        row(
                            "diverging_epoch",
                            (
                                one("epoch", Kind.INT32, default=-1),
                                one("end_offset", Kind.INT64, default=-1),
                            ),
                            12,
                            tag=0,
                        ),
                        row(
                            "current_leader",
                            (
                                one("leader_id", Kind.INT32, default=-1),
                                one("leader_epoch", Kind.INT32, default=-1),
                            ),
                            12,
                            tag=1,
                        ),
                        row(
                            "snapshot_id",
                            (
                                one("end_offset", Kind.INT64, default=-1),
                                one("epoch", Kind.INT32, default=-1),
                            ),
                            12,
                            tag=2,
                        ),
                        many(
                            "aborted_transactions",
                            (one("producer_id", Kind.INT64), one("first_offset", Kind.INT64)),
                            4,
                            null=4,
                        ),
                        one("preferred_read_replica", Kind.INT32, 11, default=-1),
                        one("records", Kind.RECORDS, null=0),
                    ),
                ),
            ),
        ),
    ),
)

LIST_OFFSETS: Final = Message(
    flexible_since=6,
    request=(
        one("replica_id", Kind.INT32, default=-1),
        one("isolation_level", Kind.INT8, 2),
        many(
            "topics",
            (
                one("name", Kind.STRING),
                many(
                    "partitions",
                    (
                        one("partition_index", Kind.INT32),
                        one("current_leader_epoch", Kind.INT32, 4, default=-1),
                        one("timestamp", Kind.INT64),
                    ),
                ),
            ),
        ),
    ),
    response=(
        one("throttle_time_ms", Kind.INT32, 2),
        many(
            "topics",
            (
                one("name", Kind.STRING),
                many(
                    "partitions",
                    (
                        one("partition_index", Kind.INT32),
                        one("error_code", Kind.INT16),
                        one("timestamp", Kind.INT64, default=-1),
                        one("offset", Kind.INT64, default=-1),
                        one("leader_epoch", Kind.INT32, 4, default=-1),
                    ),
                ),
            ),
        ),
    ),
)

OFFSET_FOR_LEADER_EPOCH: Final = Message(
    flexible_since=4,
    request=(
        one("replica_id", Kind.INT32, 3, default=-2),
        many(
            "topics",
            (
                one("topic", Kind.STRING),
                many(
                    "partitions",
                    (
                        one("partition", Kind.INT32),
                        one("current_leader_epoch", Kind.INT32, 2, default=-1),
                        one("leader_epoch", Kind.INT32),
                    ),
                ),
            ),
        ),
    ),
    response=(
        one("throttle_time_ms", Kind.INT32, 2),
        many(
            "topics",
            (
                one("topic", Kind.STRING),
                many(
                    "partitions",
                    (
                        one("error_code", Kind.INT16),
                        one("partition", Kind.INT32),
                        one("leader_epoch", Kind.INT32, 1, default=-1),
                        one("end_offset", Kind.INT64, default=-1),
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
                one("name", Kind.STRING),
                many(
                    "partitions",
                    (one("partition_index", Kind.INT32), one("offset", Kind.INT64)),
                ),
            ),
        ),
        one("timeout_ms", Kind.INT32),
    ),
    response=(
        one("throttle_time_ms", Kind.INT32),
        many(
            "topics",
            (
                one("name", Kind.STRING),
                many(
                    "partitions",
                    (
                        one("partition_index", Kind.INT32),
                        one("low_watermark", Kind.INT64),
                        one("error_code", Kind.INT16),
                    ),
                ),
            ),
        ),
    ),
)

INIT_PRODUCER_ID: Final = Message(
    flexible_since=2,
    request=(
        one("transactional_id", Kind.STRING, null=0),
        one("transaction_timeout_ms", Kind.INT32),
        one("producer_id", Kind.INT64, 3, default=-1),
        one("producer_epoch", Kind.INT16, 3, default=-1),
    ),
    response=(
        one("throttle_time_ms", Kind.INT32),
        one("error_code", Kind.INT16),
        one("producer_id", Kind.INT64, default=-1),
        one("producer_epoch", Kind.INT16),
    ),
)
