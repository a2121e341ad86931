"""Details of answers on which some client breaks, each shown without that client."""

from __future__ import annotations

from headwater.wire.kafka.apis import ApiKey
from tests.kafka.raw_kafka import RawKafka


def test_a_new_topic_is_answered_with_its_settings(speaker: RawKafka, name: str) -> None:
    """Kafka's own Java client fails without them."""
    row = {
        "name": name,
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": [{"name": "retention.ms", "value": "5000"}],
    }
    for version in (5, 7):
        asked = {"topics": [row], "validate_only": version == 5}
        (told,) = speaker.ask(ApiKey.CREATE_TOPICS, asked, version)["topics"]
        assert told["error_code"] == 0
        found = {each["name"]: each["value"] for each in told["configs"]}
        assert found["retention.ms"] == "5000"
        assert found["cleanup.policy"] == "delete"
        assert (told["num_partitions"], told["replication_factor"]) == (1, 1)
