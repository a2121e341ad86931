"""What flows where. Spark plans, orders and runs it."""

from __future__ import annotations

import os

import queries
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

URL = os.environ.get("CLICKS_URL", "http://127.0.0.1:4000")
TABLE = os.environ["SESSIONS_TABLE"]

dp.create_sink("sessions", "headwater-table", {"path": TABLE})
dp.create_sink("page_counts", "headwater", {"url": URL, "topic": queries.COUNTS_TOPIC})


@dp.append_flow(target="sessions")
def sessions_of_users() -> DataFrame:
    return queries.sessions(queries.clicks(SparkSession.active(), URL))


@dp.append_flow(target="page_counts")
def views_of_pages() -> DataFrame:
    return queries.page_counts(queries.clicks(SparkSession.active(), URL))
