"""Queues under load, beside Redis Streams consumer groups and PostgreSQL in the same run."""
