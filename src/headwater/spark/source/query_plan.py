"""From options to partitions: which topics, which seqs of each, and how they are shared out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from headwater.core.errors import RequestError, TopicNotFoundError
from headwater.core.limits import PARTITION_PREFIX
from headwater.disk import PosixDisk
from headwater.spark.source.cold_location import ColdLocation, is_cold_tier
from headwater.spark.source.directory import Directory
from headwater.spark.source.directory_location import DirectoryLocation
from headwater.spark.source.filters import Filters
from headwater.spark.source.kafka_location import KafkaLocation, MixedLocation, is_partition
from headwater.spark.source.location import (
    GapSlice,
    Location,
    LocationSnapshot,
    LostSeqs,
    TopicFacts,
    data_loss,
)
from headwater.spark.source.options import SourceOptions
from headwater.spark.source.remote_location import RemoteLocation
from headwater.store.cold_tier import URL_START

SLICES_MAX: Final = 1_000
"""Small topics share a task, up to this many of them."""


def location_of(options: SourceOptions) -> Location:
    """Where the options say the records are."""
    rows, size = options.partition_rows_max, options.partition_bytes_max
    if options.url is not None:
        prefix = PARTITION_PREFIX if is_partition(options.topic_pattern or "") else ""
        return RemoteLocation(options.url, options.token, rows, size, prefix)
    assert options.path is not None, "one of both is given"
    if options.path.startswith(URL_START):
        return ColdLocation(options.path, rows, size)
    path = options.path.removeprefix("file://")
    if Directory(path).is_data_directory():
        return _in_directory(path, options)
    if is_cold_tier(PosixDisk(), path):
        return ColdLocation(path, rows, size)
    raise RequestError(
        f"option path: {path} is neither a data directory (there is no wal/ in it) nor a cold "
        "tier (there is no topics/ in it)",
        detail={"option": "path"},
    )


def _in_directory(path: str, options: SourceOptions) -> Location:
    """Where the wanted topics are: Kafka's have a log of their own."""
    rows, size = options.partition_rows_max, options.partition_bytes_max
    topics = DirectoryLocation(path, options.cold, rows, size)
    kinds = {is_partition(name) for name in options.topics or (options.topic_pattern or "",)}
    if kinds == {False}:
        return topics
    partitions = KafkaLocation(path, options.organisation, rows, size)
    return partitions if kinds == {True} else MixedLocation(topics, partitions)


def chosen_topics(
    snapshot: LocationSnapshot, options: SourceOptions, filters: Filters
) -> list[TopicFacts]:
    """The facts of each topic that is wanted, by name. One that was named must be there."""
    if options.topic_pattern is not None:
        names = [name for name in snapshot.names() if options.wants(name)]
    else:
        names = list(options.topics)
    chosen = []
    for name in names:
        if not filters.wants_topic(name):
            continue
        facts = snapshot.facts(name)
        if facts is not None:
            chosen.append(facts)
        elif options.topic_pattern is None:
            raise TopicNotFoundError(f"there is no topic {name!r} in what is read{_hint(name)}")
    return chosen


def _hint(name: str) -> str:
    return "; see option organisation: one sees its own topics" if is_partition(name) else ""


def batch_slices(snapshot: LocationSnapshot, options: SourceOptions, filters: Filters) -> list[Any]:
    """Everything a batch query reads."""
    slices: list[Any] = []
    for facts in chosen_topics(snapshot, options, filters):
        start, end = options.start_of(facts.topic), options.end_of(facts.topic)
        last = facts.head_seq if end is None else min(end, facts.head_seq)
        first = facts.first_seq
        if start.latest:
            first = facts.head_seq + 1
        elif start.seq is not None:
            first = start.seq
            gap = upto(snapshot.gap(facts, start.seq - 1), last)
            slices += gap_slices(facts.topic, gap, options)
        slices += snapshot.slices(facts, first, last, filters)
    return slices


def gap_slices(topic: str, gap: LostSeqs | None, options: SourceOptions) -> list[GapSlice]:
    """A loss that planning met: an error, or a row of its own."""
    if gap is None:
        return []
    if options.fail_on_data_loss:
        raise data_loss(topic, gap)
    return [GapSlice(topic, gap)]


def upto(gap: LostSeqs | None, last_seq: int) -> LostSeqs | None:
    """As much of a gap as lies at or below a seq."""
    if gap is None or gap.gap_from > last_seq:
        return None
    if gap.gap_to is None or gap.gap_to <= last_seq:
        return gap
    missed = min(gap.missed_estimate or 0, last_seq - gap.gap_from + 1)
    return LostSeqs(gap.gap_from, last_seq, gap.reason, missed)


def shared_out(slices: Iterable[Any], options: SourceOptions) -> list[list[Any]]:
    """Slices in the groups that tasks get: a large one alone, small ones together."""
    groups: list[list[Any]] = []
    rows = size = 0
    for each in slices:
        fits = (
            groups
            and rows + each.rows <= options.partition_rows_max
            and size + each.size <= options.partition_bytes_max
            and len(groups[-1]) < SLICES_MAX
        )
        if not fits:
            groups.append([])
            rows = size = 0
        groups[-1].append(each)
        rows, size = rows + each.rows, size + each.size
    return groups
