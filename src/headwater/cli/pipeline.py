"""`headwater pipeline`: bulk work with Spark. A job is a module with a verb, and one line here.

A verb's module imports Spark when it runs, never when it is loaded: `headwater --help` must not
wait for it.
"""

from __future__ import annotations

from collections.abc import Callable

import typer

from headwater.cli.door import FriendlyGroup
from headwater.cli.pipeline_backfill import backfill
from headwater.cli.pipeline_doctor import doctor

VERBS: tuple[tuple[str, Callable[..., None]], ...] = (
    ("doctor", doctor),
    ("backfill", backfill),
)

pipeline = typer.Typer(
    cls=FriendlyGroup,
    help="Bulk work on topics with Spark: on this machine, or on a cluster with --master.",
    rich_markup_mode="markdown",
)
for _name, _verb in VERBS:
    pipeline.command(_name)(_verb)
