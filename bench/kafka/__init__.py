"""Kafka clients against Headwater, Apache Kafka and, where there is none, Redis Streams."""
