"""A class name means one thing in the whole package, also where an underscore makes it private.

The table has the names that stand for two things, with the reason beside each. It only gets
shorter: an entry whose name stands for one thing by now is a finding too.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Final

from tests.tidy.source import Finding, Source

TABLE: Final = PurePosixPath("tests/tidy/names.py")
_TWIN: Final = "the body that the client decodes, and the result it makes of it"
MAY_MEAN_TWO: Final[Mapping[str, str]] = {
    "AckAnswer": "the server's body, and what the client reads of it without loading the others",
    "Answer": "bodies of answers, and the part of one that an error needs",
    "ApiKey": "Kafka's own word for a kind of request; elsewhere what a client shows",
    "Appended": _TWIN,
    "Batch": "of a stream, of a request, and in Kafka's log: each is named in its own package only",
    "Claimed": _TWIN,
    "Diff": _TWIN,
    "Place": "where a job's topics are, which users name; and where records lie in a log",
    "Produce": "Kafka's own word: the request, and one batch of it on its way",
    "Requeued": _TWIN,
    "Row": "of a fetch request, and of a decision table",
    "Stop": "of a worker, and of a scan: neither is seen beside the other",
    "Transition": "of a definition, and what a filter sees of one",
    "WatchRequest": "the server's body, and what the client watches",
    "Watched": "transitions of a machine, and updates of a topic",
}


def names_mean_one_thing(
    sources: Iterable[Source], may_mean_two: Mapping[str, str] = MAY_MEAN_TWO
) -> Iterator[Finding]:
    found: dict[str, list[Finding]] = defaultdict(list)
    for source in sources:
        for node in source.nodes(ast.ClassDef) if source.in_package else ():
            found[node.name.lstrip("_")].append(source.finding(node, node.name))
    for name, classes in found.items():
        if len(classes) > 1 and name not in may_mean_two:
            for here in classes:
                others = ", ".join(f"{each.path}" for each in classes if each is not here)
                yield here._replace(message=f"{here.message} stands for something else in {others}")
    for name in may_mean_two:
        if len(found[name]) < 2:
            yield Finding(TABLE, 1, f"{name} means one thing: take it out of MAY_MEAN_TWO")
