"""`headwater instance` and `headwater event`: instances of machines, and what happens to them."""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.api.machine_requests import Moved
from headwater.cli.machine import (
    OF_A_SERVER,
    InstanceArgument,
    MachineArgument,
    MachinesCall,
    RepeatOption,
    compact_json,
    json_object,
)
from headwater.cli.output import finish, printable, say, say_table, when
from headwater.cli.remote import ANY_SERVER, ServerCall
from headwater.core.errors import RequestError
from headwater.wire.machine_answers import GapAnswer
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
    call: MachinesCall = OF_A_SERVER,
) -> None:
    """Make an instance of a machine."""
    first = json_object(ctx, "--ctx")
    with call.open() as machines:
        made = machines.create_instance(
            machine, version, instance_id, first, idempotency_key=key, ttl_ms=ttl_ms
        )
    what = "is in" if made.applied else "was made before, in"
    line = f"{printable(made.instance_id)} {what} state {printable(made.state)}"
    call.say(made, line)


def get(instance_id: InstanceArgument, call: MachinesCall = OF_A_SERVER) -> None:
    """Show an instance: its state and context."""
    with call.open() as machines:
        instance = machines.get_instance(instance_id)
    if call.say_json(instance):
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
    call: MachinesCall = OF_A_SERVER,
) -> None:
    """List instances, by id. With --json one object a line."""
    with call.open() as machines:
        page = machines.list_instances(machine, state, limit=limit, offset=offset)
    if call.say_json(*page.instances):
        return
    rows = [
        [each.id, each.machine, str(each.version), each.state, when(each.updated_at)]
        for each in page.instances
    ]
    say_table(["instance", "machine", "version", "state", "changed"], rows, "version")
    if page.has_more:
        say(f"{page.total:,} in all; more with --offset {offset + len(rows)}")


def delete(
    instance_id: InstanceArgument,
    key: RepeatOption = None,
    call: MachinesCall = OF_A_SERVER,
) -> None:
    """Delete an instance. Its history stays in the log until that is compacted."""
    with call.open() as machines:
        done = machines.delete_instance(instance_id, idempotency_key=key)
    what = "deleted" if done.applied else "was deleted before"
    call.say(done, f"{printable(instance_id)} {what}")


def migrate(
    instance_id: InstanceArgument,
    version: Annotated[int, typer.Argument(metavar="VERSION", min=1, help="The new version.")],
    state_map: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="OLD=NEW", help="A state under its new name; several."),
    ] = None,
    call: MachinesCall = OF_A_SERVER,
) -> None:
    """Move an instance to another version of its machine."""
    renamed = dict(_renamed(each) for each in state_map or ()) or None
    with call.open() as machines:
        done = machines.migrate_instance(instance_id, version, renamed)
    now = f"is of version {done.version}, in state {printable(done.to_state)}"
    call.say(done, f"{printable(instance_id)} {now}")


def _renamed(given: str) -> tuple[str, str]:
    old, equals, new = given.partition("=")
    if not equals or not old or not new:
        raise RequestError(f"--map takes OLD=NEW, not {given!r}")
    return old, new


def snapshot(instance_id: InstanceArgument, call: MachinesCall = OF_A_SERVER) -> None:
    """Write one instance to a snapshot file of its own."""
    with call.open() as machines:
        made = machines.snapshot_instance(instance_id)
    line = f"{printable(instance_id)} in state {printable(made.state)}: {made.snapshot_id}"
    call.say(made, line)


def apply(
    instance_id: InstanceArgument,
    event: Annotated[str, typer.Argument(metavar="EVENT", help="What happened.")],
    payload: Annotated[
        str | None, typer.Argument(metavar="JSON", help="Merged into the context.")
    ] = None,
    expected_state: Annotated[
        str | None,
        typer.Option("--expect-state", metavar="NAME", help="Refuse it in any other state."),
    ] = None,
    expected_offset: Annotated[
        int | None,
        typer.Option("--expect-offset", min=0, metavar="N", help="Refuse it after any change."),
    ] = None,
    event_id: Annotated[
        str | None, typer.Option("--event-id", metavar="TEXT", help="Your own name for it.")
    ] = None,
    key: RepeatOption = None,
    call: MachinesCall = OF_A_SERVER,
) -> None:
    """Apply an event to an instance."""
    given = json_object(payload, "the payload")
    with call.open() as machines:
        done = machines.apply_event(
            instance_id,
            event,
            given,
            expected_state=expected_state,
            expected_wal_offset=expected_offset,
            event_id=event_id,
            idempotency_key=key,
        )
    repeat = "" if done.applied else " (before; nothing was done now)"
    line = f"{printable(done.from_state)} -> {printable(done.to_state)}{repeat}"
    call.say(done, line)


def history(
    instance_id: InstanceArgument,
    limit: LimitOption = LIST_LIMIT_DEFAULT,
    call: MachinesCall = OF_A_SERVER,
) -> None:
    """Show what happened to an instance, oldest first. With --json one object a line."""
    with call.open() as machines:
        answer = machines.history(instance_id, limit=limit)
    if call.say_json(*answer.entries):
        return
    rows = [
        [
            when(each.ts),
            each.event or each.type,
            each.from_state or "",
            each.to_state or "",
            "" if each.payload is None else compact_json(each.payload),
        ]
        for each in answer.entries
    ]
    say_table(["when", "event", "from", "to", "payload"], rows)
    if answer.gone_before is not None:
        say("what is older was compacted away")
    if answer.damaged_at is not None:
        say(f"what is older cannot be read: the entry at {answer.damaged_at} is damaged")


def watch(
    instance_id: Annotated[
        str | None, typer.Argument(metavar="ID", help="Only this instance.")
    ] = None,
    machine: Annotated[
        list[str] | None, typer.Option("--machine", metavar="NAME", help="Only these; several.")
    ] = None,
    event: Annotated[
        list[str] | None, typer.Option("--event", metavar="NAME", help="Only these; several.")
    ] = None,
    to_state: Annotated[
        list[str] | None, typer.Option("--to", metavar="NAME", help="Only to these states.")
    ] = None,
    from_offset: Annotated[
        int | None,
        typer.Option("--from-offset", min=0, metavar="N", help="Those since then first."),
    ] = None,
    idle_ms: Annotated[
        int | None, typer.Option("--idle-ms", min=1, metavar="MS", help="Stop after such a pause.")
    ] = None,
    call: ServerCall = ANY_SERVER,
) -> None:
    """Follow transitions as they happen, until Ctrl-C."""
    with call.connect() as client:
        for moved in client.machines.watch(
            instance_id=instance_id,
            machines=machine,
            events=event,
            to_states=to_state,
            from_offset=from_offset,
            idle_ms=idle_ms,
        ):
            call.say(moved, _line(moved))
            finish()


def _line(moved: Moved) -> str:
    if isinstance(moved, GapAnswer):
        why = "" if moved.reason is None else f", {moved.reason}"
        return f"(missed: {moved.first_offset} to {moved.last_offset}{why})"
    payload = "" if moved.payload is None else f"  {compact_json(moved.payload)}"
    return printable(
        f"{when(moved.ts)}  {moved.instance_id}  {moved.event}: "
        f"{moved.from_state} -> {moved.to_state}{payload}"
    )
