"""Spark looks for modules named so, and for this name in them."""

from headwater.spark.source import HeadwaterDataSource as DefaultSource

__all__ = ["DefaultSource"]
