"""The bytes of Kafka's one shared log: files, index entries, record batches, the checkpoint."""
