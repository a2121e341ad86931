"""Spark schemas as Arrow, whatever the version of Spark calls the parameter for time zones."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def to_arrow(schema: StructType) -> Any:
    """Timestamps are in UTC, as Spark keeps them."""
    from pyspark.sql.pandas.types import to_arrow_schema

    # Since 4.2 the zone is named; 4.1 knows UTC only, which it gives by itself.
    names_zone = "timezone" in inspect.signature(to_arrow_schema).parameters
    zone: dict[str, Any] = {"timezone": "UTC"} if names_zone else {}
    return to_arrow_schema(schema, **zone)
