"""Kafka's virtual topics on one shared log."""
