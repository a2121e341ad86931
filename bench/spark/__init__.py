"""Spark reading a topic, beside Spark reading the same rows from JSON and Parquet."""
