"""Copying topics between Kafka clusters, Headwater being one. See docs/decisions/0018."""
