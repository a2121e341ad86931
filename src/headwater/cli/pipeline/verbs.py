"""The list of pipeline verbs. A job is a module with a verb, and one line here."""

from __future__ import annotations

from headwater.cli.groups import verb_group

pipeline = verb_group(
    "Bulk work on topics with Spark: on this machine, or on a cluster with --master.",
    {
        "doctor": "headwater.cli.pipeline.doctor:doctor",
        "lake": "headwater.cli.pipeline.lake:lake",
        "backfill": "headwater.cli.pipeline.backfill:backfill",
        "checkpoint": "headwater.cli.pipeline.directory:checkpoint",
        "verify": "headwater.cli.pipeline.directory:verify",
        "compact": "headwater.cli.pipeline.directory:compact",
        "replay": "headwater.cli.pipeline.replay:replay",
        "stats": "headwater.cli.pipeline.stats:stats",
        "package": "headwater.cli.pipeline.package:package",
    },
)
