"""Bytes of the Kafka part: record batches, the dense index, names, the mapping to records."""
