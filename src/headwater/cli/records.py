"""Records on the terminal and in pipes: one line each, nothing in it that a terminal would obey."""

from __future__ import annotations

import json

from headwater.cli.output import on_terminal, preview, printable, say, terminal_width, when
from headwater.core.records import Record
from headwater.core.results import Tombstone

_BLANKS = str.maketrans("\r\n\t", "   ")


def say_record(record: Record, *, as_json: bool, topic: str | None = None) -> None:
    say(record_json(record, topic) if as_json else record_line(record, topic))


def record_json(record: Record, topic: str | None = None) -> str:
    """As the server writes it. Payloads keep the text that was sent: numbers are not rounded."""
    parts = [] if topic is None else [f'"topic":{quoted(topic)}']
    parts += [f'"$seq":{record.seq}', f'"$ts":{record.ts}']
    if record.node is not None:
        parts.append(f'"$node":{quoted(record.node)}')
    if record.tag is not None:
        parts.append(f'"$tag":{quoted(record.tag)}')
    parts.append(f'"data":{ascii_json(record.data_json)}')
    if record.meta_json is not None:
        parts.append(f'"meta":{ascii_json(record.meta_json)}')
    return "{" + ",".join(parts) + "}"


def record_line(record: Record, topic: str | None = None) -> str:
    """seq, time, topic, @node, #tag, data. On a terminal the data is cut to the line."""
    front = f"{record.seq:>8}  {when(record.ts)}  "
    if topic is not None:
        front += f"{printable(topic)}  "
    if record.node is not None:
        front += f"@{printable(record.node)} "
    if record.tag is not None:
        front += f"#{printable(record.tag)} "
    if on_terminal():
        return front + preview(record.data_json, max(20, terminal_width() - len(front)))
    return front + printable(record.data_json.decode("utf-8", "backslashreplace"))


def say_tombstone(gap: Tombstone, *, as_json: bool, topic: str | None = None) -> None:
    if as_json:
        name = "" if topic is None else f'"topic":{quoted(topic)},'
        say(
            f'{{{name}"tombstone":{{"gap_from":{gap.gap_from},"gap_to":{gap.gap_to},'
            f'"reason":{quoted(gap.reason)},"missed_estimate":{gap.missed_estimate},'
            f'"earliest_seq":{gap.earliest_seq},"head_seq":{gap.head_seq}}}}}'
        )
    else:
        name = "" if topic is None else f"{printable(topic)}: "
        say(
            f"-- {name}{gap.gap_from} to {gap.gap_to} are gone ({printable(gap.reason)}, about "
            f"{gap.missed_estimate:,} records)"
        )


def quoted(text: str) -> str:
    return json.dumps(text)


def ascii_json(raw: bytes) -> str:
    """The same JSON on one line of ASCII. What is not ASCII stands in strings, where an escape
    means the same; a line break in JSON stands between values, where a blank does."""
    text = raw.decode("utf-8", "replace").translate(_BLANKS)
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        character
        if character.isascii() and character.isprintable()
        else "".join(f"\\u{unit:04x}" for unit in _utf16(character))
        for character in text
    )


def _utf16(character: str) -> list[int]:
    encoded = character.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(encoded[at : at + 2], "big") for at in range(0, len(encoded), 2)]
