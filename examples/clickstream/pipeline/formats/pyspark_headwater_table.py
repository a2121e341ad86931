"""Spark looks for modules named so, and for this name in them."""

from headwater.spark.tables.sink import TableDataSource as DefaultSource

__all__ = ["DefaultSource"]
