"""Spark schemas as Arrow: the one module that has Spark convert them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def to_arrow(schema: StructType) -> Any:
    """Timestamps are in UTC, as Spark keeps them."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")
