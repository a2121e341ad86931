"""A machine as a picture: what is drawn, and the same as Mermaid text. The SVG is in `drawing_svg`.

Names come from strangers. In Mermaid they stand as labels only, with every character that means
something there written as its number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from headwater.model.machines.definition import Definition
from headwater.model.machines.values import object_of

LABEL_CHARACTERS_MAX: Final = 44
_PLAIN: Final = frozenset(" _-.,+*/=!?@()'")


@dataclass(frozen=True, slots=True)
class Arrow:
    """A way from state to state: its events, each with its guard."""

    source: str
    target: str
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """What is drawn of a machine."""

    title: str
    states: tuple[str, ...]
    initial: str
    arrows: tuple[Arrow, ...]
    current: str | None = None
    """The state an instance is in."""


def picture(
    title: str,
    states: Sequence[str],
    initial: str,
    transitions: Iterable[tuple[Sequence[str], str, str, str | None]],
    current: str | None = None,
) -> Picture:
    """From transitions (sources, event, target, guard), in their order. Those between the same two
    states share an arrow."""
    labels: dict[tuple[str, str], list[str]] = {}
    for sources, event, target, guard in transitions:
        label = event if guard is None else f"{event} [{guard}]"
        for source in sources:
            labels.setdefault((source, target), []).append(label)
    arrows = tuple(
        Arrow(source, target, tuple(texts)) for (source, target), texts in labels.items()
    )
    return Picture(title, tuple(states), initial, arrows, current)


def picture_of(definition: Definition, current: str | None = None) -> Picture:
    given = object_of(definition.canonical)
    ways = [
        ([each["from"]] if isinstance(each["from"], str) else each["from"],
         each["event"], each["to"], each.get("guard"))
        for each in given["transitions"]
    ]  # fmt: skip
    title = f"{definition.machine} version {definition.version}"
    return picture(title, given["states"], definition.initial, ways, current)


def shortened(label: str) -> str:
    """A label that fits; the whole of it stands elsewhere."""
    if len(label) <= LABEL_CHARACTERS_MAX:
        return label
    return label[: LABEL_CHARACTERS_MAX - 1] + "…"


def mermaid(drawn: Picture) -> str:
    """A state diagram for whatever renders Mermaid: pull requests, wikis, notebooks."""
    name = {state: f"s{number}" for number, state in enumerate(drawn.states)}
    lines = ["---", f"title: {_title(drawn.title)}", "---", "stateDiagram-v2", "    direction LR"]
    lines += [f"    {name[state]} : {_text(state)}" for state in drawn.states]
    lines.append(f"    [*] --> {name[drawn.initial]}")
    for arrow in drawn.arrows:
        label = " / ".join(_text(label) for label in arrow.labels)
        lines.append(f"    {name[arrow.source]} --> {name[arrow.target]} : {label}")
    if drawn.current is not None:
        lines.append("    classDef current fill:#1a7f37,stroke:#116329,color:#ffffff")
        lines.append(f"    class {name[drawn.current]} current")
    return "\n".join(lines) + "\n"


def _text(text: str) -> str:
    """A label: what is not harmless is its number, which Mermaid turns back."""
    return "".join(each if each.isalnum() or each in _PLAIN else f"#{ord(each)};" for each in text)


def _title(text: str) -> str:
    """A title stands in YAML, as a quoted text."""
    shown = "".join(each if each.isprintable() else " " for each in text)
    escaped = shown.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
