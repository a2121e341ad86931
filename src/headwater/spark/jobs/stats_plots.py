"""The findings of `stats` as pictures: rates over time, sizes, tags, latency."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

from headwater.core.errors import AccessError, RequestError
from headwater.disk import PosixDisk, replace_file
from headwater.disk.cache import make_directories
from headwater.spark.jobs.stats import MS_PER_S, StatsReport, TopicStats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TOPICS_DRAWN: Final = 8
"""More lines than this are a tangle; the largest topics are drawn."""
_INCHES: Final = (9.0, 4.5)
_NAME_CHARACTERS: Final = 32


def write_plots(report: StatsReport, directory: PurePath) -> list[PurePath]:
    """One PNG for each question that has an answer. Returns the files."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise RequestError(
            'plots need matplotlib: run `pip install "headwater[plots]"`, or leave --plots out'
        ) from error
    written: list[PurePath] = []
    for name, draw in _PLOTS:
        figure = Figure(figsize=_INCHES, layout="constrained")
        if draw(report, figure):
            written.append(_save(figure, directory / f"{name}.png"))
    return written


def _save(figure: Figure, path: PurePath) -> PurePath:
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=120)
    try:
        make_directories(path.parent)
        replace_file(PosixDisk(), path, drawn.getvalue())
    except OSError as error:
        why = (error.strerror or "").lower()
        raise AccessError(f"the plot cannot be written ({why})", path=path) from error
    return path


def _named(text: str | None) -> str:
    """Never read as a formula, and not longer than a picture has room for."""
    shown = "(none)" if text is None else text.replace("$", r"\$")
    return shown if len(shown) <= _NAME_CHARACTERS else shown[: _NAME_CHARACTERS - 1] + "…"


def _drawn(report: StatsReport) -> tuple[TopicStats, ...]:
    return tuple(topic for topic in report.topics if topic.records)[:TOPICS_DRAWN]


def _rates(report: StatsReport, figure: Figure) -> bool:
    axes = figure.subplots()
    for topic in _drawn(report):
        mine = [bucket for bucket in report.buckets if bucket.topic == topic.topic]
        times: list[Any] = [datetime.fromtimestamp(each.ts / MS_PER_S, UTC) for each in mine]
        rates = [each.records / report.bucket_s for each in mine]
        axes.plot(times, rates, marker=".", label=_named(topic.topic))
    axes.set_ylabel("records a second")
    axes.set_xlabel(f"time of commit (UTC), buckets of {report.bucket_s} s")
    axes.set_ylim(bottom=0)
    return _finish(axes, "Rates", bool(report.buckets))


def _sizes(report: StatsReport, figure: Figure) -> bool:
    axes = figure.subplots()
    topics = _drawn(report)
    for position, topic in enumerate(topics):
        sizes = topic.sizes
        axes.plot([sizes.least, sizes.most], [position, position], color="tab:gray")
        axes.plot(
            [sizes.p50], [position], "o", color="tab:blue", label="half" if not position else None
        )
        last = "99 %" if not position else None
        axes.plot([sizes.p99], [position], "s", color="tab:red", label=last)
    axes.set_yticks(range(len(topics)), [_named(topic.topic) for topic in topics])
    axes.set_xlabel("bytes of payload, least to most")
    return _finish(axes, "Sizes", bool(topics))


def _tags(report: StatsReport, figure: Figure) -> bool:
    topics = [topic for topic in _drawn(report) if topic.tags]
    axes = figure.subplots()
    bars = [(_named(tag.tag), tag.share) for topic in topics[:1] for tag in topic.top_tags]
    axes.barh([name for name, _ in bars], [share * 100 for _, share in bars])
    axes.invert_yaxis()
    axes.set_xlabel("% of the topic's records")
    title = f"Tags of {_named(topics[0].topic)}" if topics else ""
    return _finish(axes, title, bool(topics), legend=False)


def _latencies(report: StatsReport, figure: Figure) -> bool:
    axes = figure.subplots()
    latencies = report.latency[:TOPICS_DRAWN]
    names = [_named(each.topic or "all") for each in latencies]
    for shift, (label, pick) in enumerate(_SHARES_DRAWN):
        positions = [position + (shift - 1) * 0.25 for position in range(len(latencies))]
        axes.bar(positions, [pick(each) / MS_PER_S for each in latencies], 0.25, label=label)
    axes.set_xticks(range(len(latencies)), names)
    axes.set_ylabel("seconds from commit to table")
    return _finish(axes, "Latency", bool(latencies))


_SHARES_DRAWN: Final[tuple[tuple[str, Callable[[Any], int]], ...]] = (
    ("half", lambda each: each.p50_ms),
    ("90 %", lambda each: each.p90_ms),
    ("99 %", lambda each: each.p99_ms),
)


def _finish(axes: Any, title: str, has_something: bool, *, legend: bool = True) -> bool:
    axes.set_title(title)
    axes.grid(visible=True, alpha=0.3)
    if legend and has_something:
        axes.legend(loc="best", fontsize="small")
    return has_something


_PLOTS: Final[tuple[tuple[str, Callable[[StatsReport, Any], bool]], ...]] = (
    ("rates", _rates),
    ("sizes", _sizes),
    ("tags", _tags),
    ("latency", _latencies),
)
