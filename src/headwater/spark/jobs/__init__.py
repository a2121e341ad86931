"""Pipeline jobs: each is a function `run(spark, options, progress) -> report` in its own module.

What every job shares is in `job`. A job prints nothing and exits nowhere: `headwater pipeline`, a
notebook and spark-submit show the same report.

- `stats` counts what is in topics; `lake` lands topics in tables (`lake_rows` on executors), and
  `lake_replay` tries its dead letters again; `backfill` writes files, tables or a Kafka topic
  (`origins`) into a topic, through the sink or with `straight` as segments of a new one.
- `verify` checks every byte of a data directory (`directory_scan`); `compact` rewrites segments of
  the cold tier; `checkpoint` turns log files into the segments of a new directory: it scans the log
  files (`log_files`), replays each topic (`topic_replay`), plans its segments and writes each by
  itself (`segment_plan`).
- `machine_replay` turns the machines' log (`machine_log`) into a table of instances and compares it
  with a live store.

The driver runs `run`; executors run pure functions over independent items (`SparkMap`) or Arrow
batches of a data frame.

Promises: a job that is killed or run twice does no harm, because files appear under their names
whole and what makes them count is written last; a job that writes files of a data directory holds
its lock (`log_directories.owned`); `verify` changes nothing. Damage in a file ends a job with file
and offset.

Start reading in `job`, then in the module of the job.
"""

from headwater.spark.jobs.job import NoProgress, Place, Progress, Report

__all__ = ["NoProgress", "Place", "Progress", "Report"]
