"""The report at the end: what was done, in numbers, and where to look on."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping

from rich.table import Table
from stage import Figures, Stage

import headwater


def show(stage: Stage, found: Mapping[str, Figures], elapsed_s: float) -> None:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    for title, figures in found.items():
        table.add_row()
        table.add_row("", f"[bold]{title}[/bold]")
        for name, line in figures.items():
            table.add_row(name, line)
    table.add_row()
    table.add_row("", "[bold]All of it[/bold]")
    for name, line in _whole(stage, elapsed_s).items():
        table.add_row(name, line)
    stage.console.rule("what happened")
    stage.console.print(table)


def _whole(stage: Stage, elapsed_s: float) -> Figures:
    with headwater.Client(stage.url) as client:
        topics = client.topics()
        numbers = client.metrics()
    files = sum(path.stat().st_size for path in stage.server.data.rglob("*") if path.is_file())
    python = f"Python {platform.python_version()}"
    return {
        "held": f"{sum(topic.count for topic in topics):,} records in {len(topics)} topics, "
        f"{files / 1e6:,.0f} MB on the disk with room made ahead",
        "syncs": f"{_number(numbers, 'wal_fsyncs'):,} of the disk since the last start, "
        f"for {_number(numbers, 'wal_frames'):,} frames",
        "took": f"{elapsed_s:.1f} s on {os.cpu_count()} cores, {platform.system()}, {python}, "
        f"Headwater {headwater.__version__}",
        "dashboard": f"{stage.url}/",
    }


def _number(numbers: Mapping[str, object], name: str) -> int:
    """A metric by the end of its name; they may be one for each shard."""
    found = [value for key, value in numbers.items() if name in key]
    return int(sum(value for value in found if isinstance(value, int | float)))
