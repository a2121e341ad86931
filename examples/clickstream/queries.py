"""The two questions, the same for the script, the pipeline and the notebook.

A session is what a user does without pausing for half an hour. Both queries end a window when a
click comes that is later than its end, so they can be asked of a stream that never ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "clicks"
COUNTS_TOPIC = "page-counts"
FIELDS = "user string, page string, at timestamp"
LATE = "10 minutes"
PAUSE = "30 minutes"


def clicks(spark: SparkSession, url: str) -> DataFrame:
    """The topic as a stream, with the fields of the payload as columns."""
    reader = spark.readStream.format("headwater").option("url", url).option("topic", TOPIC)
    return reader.option("fields", FIELDS).load().select("user", "page", "at", "seq")


def sessions(clicks: DataFrame) -> DataFrame:
    """One row for each visit of a user."""
    from pyspark.sql import functions as f

    of_a_visit = f.session_window("at", PAUSE)
    found = clicks.withWatermark("at", LATE).groupBy("user", of_a_visit)
    return found.agg(
        f.count("*").alias("clicks"),
        f.max("at").alias("last_click"),
        f.max(f.col("page") == "/paid").alias("bought"),
    ).select("user", f.col("session_window.start").alias("start"), "last_click", "clicks", "bought")


def page_counts(clicks: DataFrame) -> DataFrame:
    """How often each page was seen in each hour."""
    from pyspark.sql import functions as f

    hour = f.window("at", "1 hour")
    found = clicks.withWatermark("at", LATE).groupBy("page", hour).agg(f.count("*").alias("views"))
    return found.select(
        "page", f.col("window.start").alias("hour"), "views", f.col("page").alias("tag")
    )
