"""`headwater machine`: define, show and draw machines."""

from __future__ import annotations

import sys
from typing import Annotated

import msgspec
import typer

from headwater.cli.files import read_text_file
from headwater.cli.log_directory import JsonOption
from headwater.cli.machine_access import DirectoryOption, json_object, open_machines
from headwater.cli.output import printable, say, say_json, say_table, write
from headwater.cli.remote import ContextOption, TokenOption, UrlOption

MachineArgument = Annotated[str, typer.Argument(metavar="MACHINE", help="Its name.")]
VersionArgument = Annotated[
    int | None, typer.Argument(metavar="VERSION", min=1, help="The newest without it.")
]


def put(
    machine: MachineArgument,
    version: Annotated[int, typer.Argument(metavar="VERSION", min=1, help="A whole number.")],
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="JSON with the definition; - reads it from stdin.")
    ],
    directory: DirectoryOption = None,
    url: UrlOption = None,
    context: ContextOption = None,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Define a version of a machine. Versions never change; the same again is fine."""
    text = sys.stdin.read() if file == "-" else read_text_file(file)
    definition = json_object(text, "the definition")
    assert definition is not None
    with open_machines(url, context, token, directory, may_begin=True) as machines:
        made = machines.put_machine(machine, version, definition)
    if as_json:
        say_json(msgspec.to_builtins(made))
        return
    what = "defined" if made.created else "was defined like that before"
    say(f"{printable(made.machine)} version {made.version} {what}")


def get(
    machine: MachineArgument,
    version: VersionArgument = None,
    directory: DirectoryOption = None,
    url: UrlOption = None,
    context: ContextOption = None,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the definition of a machine, as JSON."""
    with open_machines(url, context, token, directory) as machines:
        machine_answer = machines.get_machine(machine, version)
    if as_json:
        say_json(msgspec.to_builtins(machine_answer))
        return
    say(msgspec.json.format(msgspec.json.encode(machine_answer.definition), indent=2).decode())


def listed(
    directory: DirectoryOption = None,
    url: UrlOption = None,
    context: ContextOption = None,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """List machines and their versions."""
    with open_machines(url, context, token, directory) as machines:
        machine_answer = machines.list_machines().items
    if as_json:
        for each in machine_answer:
            say_json(msgspec.to_builtins(each))
        return
    rows = [[each.machine, ", ".join(map(str, each.versions))] for each in machine_answer]
    say_table(["machine", "versions"], rows)


def draw(
    machine: MachineArgument,
    version: VersionArgument = None,
    svg: Annotated[bool, typer.Option("--svg", help="SVG instead of Mermaid text.")] = False,
    instance: Annotated[
        str | None,
        typer.Option("--instance", metavar="ID", help="Mark the state this instance is in."),
    ] = None,
    directory: DirectoryOption = None,
    url: UrlOption = None,
    context: ContextOption = None,
    token: TokenOption = None,
) -> None:
    """Draw a machine: Mermaid text, or SVG for a file (`> order.svg`)."""
    form = "svg" if svg else "mermaid"
    with open_machines(url, context, token, directory) as machines:
        if instance is not None and version is None:
            version = machines.get_instance(instance).version
        write(machines.draw(machine, version, form=form, instance_id=instance))
