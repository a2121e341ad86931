"""`headwater instance`: create, show, list, delete and migrate instances of machines."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from headwater.cli.log_directory import JsonOption
from headwater.cli.machine import MachineArgument
from headwater.cli.machine_access import (
    DirectoryOption,
    InstanceArgument,
    RepeatOption,
    compact_json,
    json_object,
    open_machines,
)
from headwater.cli.output import printable, say, say_json, say_table, when
from headwater.cli.remote import ContextOption, TokenOption, UrlOption
from headwater.core.errors import RequestError
from headwater.wire.machine_requests import LIST_LIMIT_DEFAULT, LIST_LIMIT_MAX

LimitOption = Annotated[
    int, typer.Option("--limit", "-n", min=1, max=LIST_LIMIT_MAX, metavar="N", help="So many.")
]


def create(
    machine: MachineArgument,
    instance_id: Annotated[
        str | None, typer.Argument(metavar="ID", help="Its id; a new one without it.")
    ] = None,
    version: Annotated[
        int | None, typer.Option("--version", min=1, metavar="N", help="The newest without it.")
    ] = None,
    ctx: Annotated[
        str | None, typer.Option("--ctx", metavar="JSON", help="The context it begins with.")
    ] = None,
    ttl_ms: Annotated[
        int | None, typer.Option("--ttl-ms", min=1, metavar="MS", help="Delete it after so long.")
    ] = None,
    key: RepeatOption = None,
    directory: DirectoryOption = None,
    url: UrlOption = None,
    context: ContextOption = None,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make an instance of a machine."""
    first = json_object(ctx, "--ctx")
    with open_machines(url, context, token, directory) as machines:
        made = machines.create_instance(
            machine, version, instance_id, first, idempotency_key=key, ttl_ms=ttl_ms
        )
    if as_json:
        say_json(msgspec.to_builtins(made))
        return
    what = "is in" if made.applied else "was made before, in"
    say(f"{printable(made.instance_id)} {what} state {printable(made.state)}")


def get(
    instance_id: InstanceArgument,
    directory: DirectoryOption = None,
    url: UrlOption = None,
    context: ContextOption = None,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show an instance: its state and context."""
    with open_machines(url, context, token, directory) as machines:
        instance = machines.get_instance(instance_id)
    if as_json:
        say_json(msgspec.to_builtins(instance))
        return
    rows = [
        ["machine", f"{instance.machine} version {instance.version}"],
        ["state", instance.state],
        ["context", compact_json(instance.ctx)],
        ["created", when(instance.created_at)],
        ["changed", when(instance.updated_at)],
        ["last entry", str(instance.last_wal_offset)],
    ]
    if instance.expires_at is not None:
        rows.append(["expires", when(instance.expires_at)])
    if instance.doubtful:
        rows.append(["doubtful", "entries about it may have been lost to damage"])
    say_table(["what", "value"], rows)


def listed(
    machine: Annotated[
        str | None, typer.Option("--machine", metavar="NAME", help="Only of this machine.")
    ] = None,
    state: Annotated[
        str | None, typer.Option("--state", metavar="NAME", help="Only in this state.")
    ] = None,
    limit: LimitOption = LIST_LIMIT_DEFAULT,
    offset: Annotated[
        int, typer.Option("--offset", min=0, metavar="N", help="Pass over so many.")
    ] = 0,
    directory: DirectoryOption = None,
    url: UrlOption = None,
    context: ContextOption = None,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """List instances, by id. With --json one object a line."""
    with open_machines(url, context, token, directory) as machines:
        instance = machines.list_instances(machine, state, limit=limit, offset=offset)
    if as_json:
        for each in instance.instances:
            say_json(msgspec.to_builtins(each))
        return
    rows = [
        [each.id, each.machine, str(each.version), each.state, when(each.updated_at)]
        for each in instance.instances
    ]
    say_table(["instance", "machine", "version", "state", "changed"], rows, "version")
    if instance.has_more:
        say(f"{instance.total:,} in all; more with --offset {offset + len(rows)}")


def delete(
    instance_id: InstanceArgument,
    key: RepeatOption = None,
    directory: DirectoryOption = None,
    url: UrlOption = None,
    context: ContextOption = None,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete an instance. Its history stays in the log until that is compacted."""
    with open_machines(url, context, token, directory) as machines:
        done = machines.delete_instance(instance_id, idempotency_key=key)
    if as_json:
        say_json(msgspec.to_builtins(done))
    else:
        say(f"{printable(instance_id)} {'deleted' if done.applied else 'was deleted before'}")


def migrate(
    instance_id: InstanceArgument,
    version: Annotated[int, typer.Argument(metavar="VERSION", min=1, help="The new version.")],
    state_map: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="OLD=NEW", help="A state under its new name; several."),
    ] = None,
    directory: DirectoryOption = None,
    url: UrlOption = None,
    context: ContextOption = None,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Move an instance to another version of its machine."""
    renamed = dict(_renamed(each) for each in state_map or ()) or None
    with open_machines(url, context, token, directory) as machines:
        done = machines.migrate_instance(instance_id, version, renamed)
    if as_json:
        say_json(msgspec.to_builtins(done))
    else:
        say(
            f"{printable(instance_id)} is of version {done.version}, "
            f"in state {printable(done.to_state)}"
        )


def _renamed(given: str) -> tuple[str, str]:
    old, equals, new = given.partition("=")
    if not equals or not old or not new:
        raise RequestError(f"--map takes OLD=NEW, not {given!r}")
    return old, new


def snapshot(
    instance_id: InstanceArgument,
    directory: DirectoryOption = None,
    url: UrlOption = None,
    context: ContextOption = None,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write one instance to a snapshot file of its own."""
    with open_machines(url, context, token, directory) as machines:
        made = machines.snapshot_instance(instance_id)
    if as_json:
        say_json(msgspec.to_builtins(made))
    else:
        say(f"{printable(instance_id)} in state {printable(made.state)}: {made.snapshot_id}")
