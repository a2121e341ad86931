"""`headwater pipeline stats`: what is in topics, how it came, how late it is processed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.output import printable, say, say_table, when
from headwater.cli.pipeline.flags import (
    NOWHERE,
    ON_THIS_MACHINE,
    PlaceOptions,
    RunOptions,
)
from headwater.cli.pipeline.job_run import run_job
from headwater.core.units import MIB

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.spark.jobs.job import Progress
    from headwater.spark.jobs.stats import StatsReport


def stats(
    place: PlaceOptions = NOWHERE,
    top: Annotated[
        int, typer.Option(min=1, metavar="N", help="Name so many tags of each topic.")
    ] = 5,
    bucket: Annotated[
        int | None,
        typer.Option(
            "--bucket", min=1, metavar="SECONDS", help="Rates are counted in pieces this long."
        ),
    ] = None,
    table: Annotated[
        str | None,
        typer.Option(
            "--table",
            metavar="LOCATION",
            help="A table filled from these topics: how long after their commit rows were in it.",
        ),
    ] = None,
    table_format: Annotated[
        str, typer.Option("--format", metavar="delta|parquet", help="What the table is.")
    ] = "delta",
    plots: Annotated[
        Path | None,
        typer.Option("--plots", metavar="DIR", help="Draw rates, sizes, tags, latency there."),
    ] = None,
    run_options: RunOptions = ON_THIS_MACHINE,
) -> None:
    """Count what topics hold: rates, sizes, tags, skew, losses. All topics unless some are named.

    --json has the counts of every bucket too.
    """
    from headwater.spark.jobs import stats as job

    options = job.StatsOptions(
        place=place.find(),
        top=top,
        bucket_s=bucket,
        table=table,
        table_format=table_format,
    )

    def run_and_draw(
        spark: SparkSession, stats_options: job.StatsOptions, progress: Progress | None
    ) -> job.StatsReport:
        report = job.run(spark, stats_options, progress)
        if plots is not None:
            from headwater.spark.jobs.stats_plots import write_plots

            write_plots(report, plots.absolute())
        return report

    run_job("stats", run_and_draw, options, run_options, _show)


def _show(report: StatsReport) -> None:
    say_table(
        ["topic", "records", "MiB", "from", "to", "per_s", "peak_per_s", "p50", "p99", "lost"],
        [
            [
                each.topic,
                f"{each.records:,}",
                f"{each.bytes / MIB:,.1f}",
                when(each.first_ts or 0),
                when(each.last_ts or 0),
                f"{each.records_per_s:,.1f}",
                f"{each.peak_records_per_s:,.1f}",
                f"{each.sizes.p50:,}",
                f"{each.sizes.p99:,}",
                f"{each.lost:,}",
            ]
            for each in report.topics
        ],
        "records MiB per_s peak_per_s p50 p99 lost",
    )
    for each in report.topics:
        if each.tags:
            top_tags = ", ".join(
                f"{'(none)' if tag.tag is None else printable(tag.tag)} {tag.share:.1%}"
                for tag in each.top_tags
            )
            say(f"{printable(each.topic)}: {each.tags:,} tags ({top_tags}), {each.nodes:,} nodes")
    if report.latency:
        say()
        say_table(
            ["processed", "rows", "p50", "p90", "p99", "most"],
            [
                [
                    each.topic or "all",
                    f"{each.rows:,}",
                    *(_seconds(ms) for ms in (each.p50_ms, each.p90_ms, each.p99_ms, each.most_ms)),
                ]
                for each in report.latency
            ],
            "rows p50 p90 p99 most",
        )


def _seconds(ms: int) -> str:
    return f"{ms / 1_000:,.1f} s"
