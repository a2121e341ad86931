"""`headwater pipeline`: bulk work with Spark, one verb for each job.

`verbs` lists them. A verb's module turns flags into the options of a job of `headwater.spark.jobs`
and its report into lines; `job_run` does what all of them share: a session, a bar on stderr, the
report as JSON or in a file, the exit code, and a copy for the dashboard. `flags` has the flags that
several jobs take. `doctor` reports what there is for Spark, and `package` writes what spark-submit
needs.

A verb's module imports Spark when it runs, never when it is loaded: `headwater --help` must not
wait for it. Start reading in `job_run`.
"""

from headwater.cli.pipeline.verbs import pipeline

__all__ = ["pipeline"]
