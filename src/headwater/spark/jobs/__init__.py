"""Pipeline jobs: each is a function `run(spark, options, progress) -> report` in its own module."""

from headwater.spark.jobs.job import NoProgress, Place, Progress, Report

__all__ = ["NoProgress", "Place", "Progress", "Report"]
