"""The verbs, put together. A new verb is a module with a function, and one line here.

Modules are imported when their verb is used: whoever starts a server does not wait for the client
to be loaded, and nobody waits for Spark.
"""

from __future__ import annotations

from typing import Annotated

import typer

from headwater import __version__
from headwater.cli.late_verbs import Verbs, help_when_alone, late_group, verb_group
from headwater.cli.output import say

EXIT_CODES = (
    "Exit codes: 0 fine, 2 the request was wrong, 3 try again later, 4 the directory is "
    "in use, 5 a file or disk needs you, 70 a bug in Headwater."
)


def _headwater(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and stop.")] = False,
) -> None:
    if version:
        say(f"headwater {__version__}")
        raise typer.Exit
    help_when_alone(context)


topic = verb_group(
    "Make, list, look at and drop topics of a server.",
    {
        "create": "headwater.cli.topic:create",
        "list": "headwater.cli.topic:listed",
        "show": "headwater.cli.topic:show",
        "delete": "headwater.cli.topic:drop",
    },
)
queue = verb_group(
    "Work with the jobs of a queue.",
    {
        "claim": "headwater.cli.queue:claim",
        "ack": "headwater.cli.queue:ack",
        "nack": "headwater.cli.queue:nack",
        "extend": "headwater.cli.queue:extend",
        "work": "headwater.cli.queue_work:work",
        "stats": "headwater.cli.queue:stats",
        "pause": "headwater.cli.queue:pause",
        "resume": "headwater.cli.queue:resume",
    },
)
router = verb_group(
    "Copy records from topic to topic.",
    {
        "put": "headwater.cli.router:put",
        "list": "headwater.cli.router:listed",
        "show": "headwater.cli.router:show",
        "delete": "headwater.cli.router:remove",
    },
)
context = verb_group(
    "Remember servers by name, with their keys.",
    {
        "add": "headwater.cli.context:add",
        "use": "headwater.cli.context:use",
        "list": "headwater.cli.context:show",
        "remove": "headwater.cli.context:remove",
    },
)
wal = verb_group(
    "Look into the write-ahead log of a data directory, and mend it.",
    {
        "verify": "headwater.cli.wal_verify:verify",
        "dump": "headwater.cli.wal_dump:dump",
        "repair": "headwater.cli.wal_repair:repair",
    },
)
VERBS: Verbs = {
    "serve": "headwater.cli.serve:serve",
    "topic": topic,
    "write": "headwater.cli.write:write",
    "read": "headwater.cli.read:read",
    "tail": "headwater.cli.read:tail",
    "watch": "headwater.cli.read:watch",
    "delete": "headwater.cli.delete:delete",
    "queue": queue,
    "router": router,
    "stats": "headwater.cli.stats:stats",
    "bench": "headwater.cli.bench:bench",
    "doctor": "headwater.cli.doctor:doctor",
    "context": context,
    "wal": wal,
    "pipeline": "headwater.cli.pipeline:pipeline",
    "bridge": "headwater.cli.bridge:bridge",
    "backup": "headwater.cli.backup:backup",
    "restore": "headwater.cli.restore:restore",
    "verify": "headwater.cli.verify:verify",
    "show": "headwater.cli.show:show",
    "completion": "headwater.cli.completion:completion",
}
app = typer.Typer(
    name="headwater",
    cls=late_group(VERBS),
    help="One durable event log for one machine.",
    epilog=EXIT_CODES,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.callback(invoke_without_command=True)(_headwater)


def main() -> None:
    app(prog_name="headwater")
