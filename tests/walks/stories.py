"""The walks of docs/walks.md, and what the page says about each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Walk:
    key: str
    title: str
    story: str
    is_long: bool = False
    """Only the function that is called first in each file is listed."""


WALKS: Final = (
    Walk(
        "write",
        "A durable write",
        "A client posts one record to a topic of class `fsync`. The event loop reads the "
        "request, applies the rules, assigns the seq, encodes the frame and queues it as a "
        "ticket. The writer thread puts all tickets that wait into one group, writes and syncs "
        "it. Back on the event loop the record becomes visible and the server sends the answer.",
    ),
    Walk(
        "read",
        "A diff",
        "A client asks for what came after a seq. The records are still in the tail, in memory, "
        "so the event loop answers alone: it plans the read, prints the frames as JSON and "
        "sends the parts.",
    ),
    Walk(
        "claim",
        "A claim",
        "A worker claims one job of a queue. The job is ready and in memory and the log holds a "
        "ceiling above its lease id, so nothing has to be written: the claim is granted, "
        "printed and sent in one call.",
    ),
    Walk(
        "produce",
        "A Kafka produce",
        "A Kafka client sends one batch with `acks=all`. The way is that of a write, on a log "
        "of its own; the batch is stored as it came, with its offset filled in.",
    ),
    Walk(
        "event",
        "An event of a state machine",
        "A client applies an event to an instance over RCPX. The event loop collects the events "
        "of one turn, checks the guards, computes the new states and queues them as entries of "
        "the machines' log. The answer follows the sync. The copy into the topic of transitions "
        "is left out: a timer makes it.",
    ),
    Walk(
        "checkpoint",
        "A checkpoint",
        "The maintenance thread moves what only the log holds into segments, marks that in the "
        "log and writes a snapshot. Whatever touches domain state runs on the event loop, which "
        "the thread asks for it.",
    ),
    Walk(
        "start",
        "A start",
        "A server that was stopped cleanly opens its three stores again. The event loop binds "
        'the ports and answers "not ready"; reader threads recover topics and machines, then '
        "Kafka's log. Of each file only the function that is called first is listed, and no "
        "constructors.",
        is_long=True,
    ),
)

INTRODUCTION: Final = """\
# Follow one write

Seven walks through the code, from the bytes of a request to its answer. A test ran a server with
a topic, a queue, a Kafka topic and a state machine, and wrote down which function of Headwater
ran on which thread.

- A list has a function once per thread, at its first call; later calls are left out. `A.f` → `.g`
  → `h` were called in this order, not always by each other. The sentence below is from the
  docstring of one of them.
- Also left out are the client, timers, readings of the clock, and what depends on timing. Files
  of `native` are compiled loops.
- *Files* counts the source files on a walk, *room switches* how often a list goes from one
  package directly under `headwater` to another, *hops* how often another thread takes over
  (of two; how often three or more take turns is chance).

`make docs-walks` writes this page; a test fails when it names what the code does not do.
"""
