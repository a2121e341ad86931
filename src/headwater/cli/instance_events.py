"""`headwater event apply`, `instance history`, `instance watch`: what happens to instances."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from headwater.api.machines import Moved
from headwater.cli.instance import LimitOption
from headwater.cli.log_directory import JsonOption
from headwater.cli.machine_access import (
    DirectoryOption,
    InstanceArgument,
    RepeatOption,
    compact_json,
    json_object,
    open_machines,
)
from headwater.cli.output import finish, printable, say, say_json, say_table, when
from headwater.cli.remote import ContextOption, TokenOption, UrlOption
from headwater.wire.machine_answers import GapAnswer
from headwater.wire.machine_requests import LIST_LIMIT_DEFAULT


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
    directory: DirectoryOption = None,
    url: UrlOption = None,
    context: ContextOption = None,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Apply an event to an instance."""
    given = json_object(payload, "the payload")
    with open_machines(url, context, token, directory) as machines:
        done = machines.apply_event(
            instance_id,
            event,
            given,
            expected_state=expected_state,
            expected_wal_offset=expected_offset,
            event_id=event_id,
            idempotency_key=key,
        )
    if as_json:
        say_json(msgspec.to_builtins(done))
        return
    repeat = "" if done.applied else " (before; nothing was done now)"
    say(f"{printable(done.from_state)} -> {printable(done.to_state)}{repeat}")


def history(
    instance_id: InstanceArgument,
    limit: LimitOption = LIST_LIMIT_DEFAULT,
    directory: DirectoryOption = None,
    url: UrlOption = None,
    context: ContextOption = None,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what happened to an instance, oldest first. With --json one object a line."""
    with open_machines(url, context, token, directory) as machines:
        answer = machines.history(instance_id, limit=limit)
    if as_json:
        for each in answer.entries:
            say_json(msgspec.to_builtins(each))
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
    url: UrlOption = None,
    context: ContextOption = None,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Follow transitions as they happen, until Ctrl-C."""
    with open_machines(url, context, token, None) as machines:
        for moved in machines.watch(
            instance_id=instance_id,
            machines=machine,
            events=event,
            to_states=to_state,
            from_offset=from_offset,
            idle_ms=idle_ms,
        ):
            if as_json:
                say_json(msgspec.to_builtins(moved))
            else:
                say(_line(moved))
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
