"""`headwater stats`: how a server is doing, in one screen."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Annotated, Any

import typer

from headwater.cli.output import say, say_table
from headwater.cli.remote import ANY_SERVER, ServerCall

_NAME = re.compile(r"headwater_(\w+)(?:\{\w+=(.*)\})?")
_SUMMARY = (
    ("topics", "topics"),
    ("records", "records_live"),
    ("payload bytes", "bytes_live"),
    ("connections", "connections"),
    ("open streams", "sse_connections"),
    ("writes", "appends"),
    ("records written", "records_appended"),
    ("reads", "reads"),
    ("records read", "records_read"),
    ("records evicted", "records_evicted"),
    ("records deleted", "records_deleted"),
    ("log syncs", "wal_fsyncs"),
    ("log bytes written", "wal_bytes_written"),
    ("writes refused, queue full", "wal_submit_full"),
    ("writes refused, pressure", "writes_refused"),
    ("damaged frames met", "bad_frames"),
    ("gaps in the topic of transitions", "machine_transition_gaps"),
    ("gaps sent to webhooks", "webhook_gaps"),
)


def stats(
    top: Annotated[
        int, typer.Option(min=0, metavar="N", help="Show so many of the largest topics.")
    ] = 10,
    call: ServerCall = ANY_SERVER,
) -> None:
    """Show what a server holds and has done. --json gives every metric."""
    with call.connect() as client:
        metrics = client.metrics()
        state = client.ready()
    if call.say_json({"state": state, "metrics": metrics}):
        return
    labelled = _labelled(metrics)
    rows = [["state", state], ["uptime", _duration(_total(labelled, "uptime_ms") / 1_000)]]
    rows += [
        [title, f"{_total(labelled, name):,.0f}"] for title, name in _SUMMARY if name in labelled
    ]
    rows += [["log sync, half within", _quantile(labelled, 0.5)]]
    rows += [["log sync, 99 % within", _quantile(labelled, 0.99)]]
    rows += _held(labelled)
    say_table(["what", "value"], rows, "value")
    sizes = labelled.get("topic_bytes_live", {})
    largest = sorted(sizes, key=lambda name: -float(sizes[name]))[:top]
    if largest:
        say()
        counts, heads = labelled["topic_records_live"], labelled["topic_head_seq"]
        table = [[n, f"{counts[n]:,}", f"{sizes[n]:,}", str(heads[n])] for n in largest]
        say_table(["topic", "records", "bytes", "head"], table, "records bytes head")


def _held(labelled: dict[str, dict[str, Any]]) -> list[list[str]]:
    """Old log that is kept because something still needs it, by what needs it."""
    ages = labelled.get("retention_hold_age_seconds", {})
    return [
        [f"log kept for: {owner.replace('_', ' ')}", f"{held:,.0f} bytes, {_duration(ages[owner])}"]
        for owner, held in labelled.get("retention_held_bytes", {}).items()
        if held
    ]


def _labelled(metrics: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """name -> label -> value; one without a label has the label ""."""
    samples: dict[str, dict[str, Any]] = defaultdict(dict)
    for name, value in metrics.items():
        parsed = _NAME.fullmatch(name)
        if parsed is not None:
            samples[parsed[1]][parsed[2] or ""] = value
    return samples


def _total(labelled: dict[str, dict[str, Any]], name: str) -> float:
    return sum(float(value) for value in labelled.get(name, {}).values())


def _quantile(labelled: dict[str, dict[str, Any]], share: float) -> str:
    """The bucket of all shards' histograms in which a share of the syncs ended."""
    sums: dict[float, float] = defaultdict(float)
    for buckets, _sum in labelled.get("wal_fsync_latency_seconds", {}).values():
        for bound, count in buckets:
            sums[float(bound)] += count
    total = max(sums.values(), default=0.0)
    if not total:
        return "-"
    bound = next(bound for bound in sorted(sums) if sums[bound] >= total * share)
    if bound == float("inf"):
        return "over the last bucket"
    return f"{bound * 1_000:g} ms"


def _duration(seconds: float) -> str:
    days, rest = divmod(int(seconds), 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, rest = divmod(rest, 60)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    words = [f"{number} {unit}" for number, unit in parts if number]
    return " ".join(words[:2]) or "0 s"
