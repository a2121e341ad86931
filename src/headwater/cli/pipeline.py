"""`headwater pipeline`: bulk work with Spark. A job is a module with a verb, and one line here.

A verb's module imports Spark when it runs, never when it is loaded: `headwater --help` must not
wait for it.
"""

from __future__ import annotations

from headwater.cli.late_groups import verb_group

pipeline = verb_group(
    "Bulk work on topics with Spark: on this machine, or on a cluster with --master.",
    {
        "doctor": "headwater.cli.pipeline_doctor:doctor",
        "lake": "headwater.cli.pipeline_lake:lake",
        "backfill": "headwater.cli.pipeline_backfill:backfill",
        "checkpoint": "headwater.cli.pipeline_checkpoint:checkpoint",
        "verify": "headwater.cli.pipeline_verify:verify",
        "compact": "headwater.cli.pipeline_compact:compact",
        "replay": "headwater.cli.pipeline_replay:replay",
        "stats": "headwater.cli.pipeline_stats:stats",
        "package": "headwater.cli.pipeline_package:package",
    },
)
