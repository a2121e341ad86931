"""The verbs, put together. A new verb is a module with a function, and one line here.

Modules are imported when their verb is used: a server that starts does not wait for the client to
be loaded, and only pipelines wait for Spark.
"""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli.groups import Verbs, help_when_alone, late_group, verb_group
from headwater.cli.output import say
from headwater.core.version import __version__

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
    "Create, list, show and drop topics of a server.",
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
        "work": "headwater.cli.queue:work",
        "requeue": "headwater.cli.queue:requeue",
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
machine = verb_group(
    "Define, show and draw state machines.",
    {
        "put": "headwater.cli.machine:put",
        "get": "headwater.cli.machine:get",
        "list": "headwater.cli.machine:listed",
        "draw": "headwater.cli.machine:draw",
    },
)
instance = verb_group(
    "Work with instances of state machines.",
    {
        "create": "headwater.cli.instance:create",
        "get": "headwater.cli.instance:get",
        "list": "headwater.cli.instance:listed",
        "delete": "headwater.cli.instance:delete",
        "history": "headwater.cli.instance:history",
        "watch": "headwater.cli.instance:watch",
        "migrate": "headwater.cli.instance:migrate",
    },
)
event = verb_group(
    "Apply events to instances of state machines.",
    {"apply": "headwater.cli.instance:apply"},
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
    "Inspect the write-ahead log of a data directory, and repair it. `read` and `stats` are about "
    "the log of state machines.",
    {
        "verify": "headwater.cli.wal.repair:verify",
        "dump": "headwater.cli.wal.dump:dump",
        "repair": "headwater.cli.wal.repair:repair",
        "read": "headwater.cli.machine:read",
        "stats": "headwater.cli.machine:stats",
    },
)
VERBS: Verbs = {
    "serve": "headwater.cli.serve:serve",
    "topic": topic,
    "write": "headwater.cli.write:write",
    "read": "headwater.cli.read:read",
    "tail": "headwater.cli.read:tail",
    "watch": "headwater.cli.read:watch",
    "delete": "headwater.cli.read:delete",
    "queue": queue,
    "router": router,
    "machine": machine,
    "instance": instance,
    "event": event,
    "compact": "headwater.cli.machine:compact",
    "snapshot-instance": "headwater.cli.instance:snapshot",
    "stats": "headwater.cli.stats:stats",
    "trace": "headwater.cli.trace:trace",
    "bench": "headwater.cli.bench:bench",
    "doctor": "headwater.cli.doctor:doctor",
    "context": context,
    "wal": wal,
    "pipeline": "headwater.cli.pipeline:pipeline",
    "bridge": "headwater.cli.bridge:bridge",
    "backup": "headwater.cli.backup:backup",
    "restore": "headwater.cli.backup:restore",
    "verify": "headwater.cli.verify:verify",
    "repair": "headwater.cli.wal.repair:repair",
    "show": "headwater.cli.show.command:show",
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


def run_app() -> None:
    app(prog_name="headwater")
