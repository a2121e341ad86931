"""`spark.readStream.format("headwater")`: micro-batches of seqs, each read like a batch query.

Nothing is remembered between calls but the end of an availableNow run: what there is to read is
looked up each time, and where the query stands is in its checkpoint. What retention takes before
it was read stops the query, or becomes a row, as `failOnDataLoss` says.

An offset has for each topic its epoch and the last seq that was read. Spark keeps offsets as text
and compares them as text, so the keys are always in the same order. A topic enters with the seq it
is read from, before a record of it is, so that a batch that is run again reads the same seqs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from headwater.core.errors import DataLossError, RequestError, StorageError
from headwater.spark.source.filters import Filters
from headwater.spark.source.location import (
    DROPPED,
    RECREATED,
    LocationSnapshot,
    LostSeqs,
    TopicFacts,
)
from headwater.spark.source.options import SourceOptions
from headwater.spark.source.query_plan import (
    chosen_topics,
    gap_slices,
    location_of,
    shared_out,
    upto,
)
from headwater.spark.source.schema import chosen_columns
from headwater.spark.source.task_reader import SlicePartition, TaskReader

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class TopicCursor:
    epoch: int
    seq: int


Cursors = Mapping[str, TopicCursor]


def encode_offset(cursors: Cursors) -> dict[str, Any]:
    topics = {
        name: {"epoch": cursors[name].epoch, "seq": cursors[name].seq} for name in sorted(cursors)
    }
    return {"topics": topics, "version": VERSION}


def decode_offset(offset: Any) -> dict[str, TopicCursor]:
    try:
        version = int(offset["version"])
        if version > VERSION:
            raise RequestError(
                f"the checkpoint was written by a newer Headwater (offset version {version}); "
                "use that one, or another checkpoint"
            )
        return {
            str(name): TopicCursor(int(cursor["epoch"]), int(cursor["seq"]))
            for name, cursor in offset["topics"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RequestError(
            f"the checkpoint holds an offset that is none of this source: {str(offset)[:120]!r}; "
            "was it written by another query?"
        ) from error


def share(lags: Mapping[str, int], limit: int) -> dict[str, int]:
    """How many records of each topic go into a batch of at most `limit`.

    By lag, so that all of them arrive at their ends together; none that waits is left out as long
    as there is one record for each.
    """
    total = sum(lags.values())
    if total <= limit:
        return dict(lags)
    waiting = sorted((name for name, lag in lags.items() if lag), key=lambda name: -lags[name])
    shares = dict.fromkeys(lags, 0)
    for name in waiting[:limit]:
        shares[name] = 1
    left = limit - min(limit, len(waiting))
    for name in waiting[:limit]:
        more = min(limit * lags[name] // total - 1, lags[name] - 1, left)
        if more > 0:
            shares[name] += more
            left -= more
    for name in waiting[:limit]:
        more = min(lags[name] - shares[name], left)
        shares[name] += more
        left -= more
    return shares


REWOUND = "rewound"
"""The topic ends before what was read of it: an older copy was put in its place."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        for option, given in (
            ("endingSeq", options.ending is not None or options.ending_by_topic),
            ("endingTimestamp", options.ending_us is not None),
        ):
            if given:
                raise RequestError(
                    f"option {option} is for batch queries; a stream that ends is a query with "
                    "the trigger availableNow",
                    detail={"option": option},
                )
        self._options = options
        self._columns = chosen_columns(options, schema)
        self._location = location_of(options)
        self._target: dict[str, TopicCursor] | None = None

    # -- where the query is, and where it could be

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        try:
            return encode_offset(self._beginnings(tolerant=False))
        except DataLossError:
            raise
        except StorageError:
            # By now it is known to be there to stay, and not its owner at work.
            if self._options.fail_on_data_loss:
                raise
            return encode_offset(self._beginnings(tolerant=True))

    def latestOffset(self, start: Any, limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        cursors = decode_offset(start)
        facts = self._facts()
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return encode_offset(self._reachable(cursors, facts, most))

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """The ends of the topics, whatever limit there is: the distance to them is the lag."""
        return encode_offset(self._heads())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self._options.records_per_trigger_max
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._heads()

    def _beginnings(self, *, tolerant: bool) -> dict[str, TopicCursor]:
        def begin(snapshot: LocationSnapshot) -> dict[str, TopicCursor]:
            topics = chosen_topics(snapshot, self._options, Filters())
            return {each.topic: self._beginning(snapshot, each, tolerant) for each in topics}

        return self._location.now(begin)

    def _beginning(
        self, snapshot: LocationSnapshot, facts: TopicFacts, tolerant: bool
    ) -> TopicCursor:
        start = self._options.start_of(facts.topic)
        if self._options.starting_us is not None:
            seq = snapshot.seq_at(facts, self._options.starting_us, tolerant=tolerant) - 1
        elif start.latest:
            seq = facts.head_seq
        else:
            seq = facts.first_seq - 1 if start.seq is None else start.seq - 1
        return TopicCursor(facts.epoch, seq)

    def _facts(self) -> dict[str, TopicFacts]:
        def all_facts(snapshot: LocationSnapshot) -> dict[str, TopicFacts]:
            names = snapshot.names() if self._options.topic_pattern else self._options.topics
            wanted = filter(self._options.wants, names)
            facts_by_name = ((name, snapshot.facts(name)) for name in wanted)
            return {name: facts for name, facts in facts_by_name if facts is not None}

        return self._location.now(all_facts)

    def _heads(self) -> dict[str, TopicCursor]:
        return {name: TopicCursor(f.epoch, f.head_seq) for name, f in self._facts().items()}

    def _reachable(
        self, cursors: Mapping[str, TopicCursor], facts: Mapping[str, TopicFacts], most: int | None
    ) -> dict[str, TopicCursor]:
        """The end of the next batch."""
        ends: dict[str, TopicCursor] = {}
        lags: dict[str, int] = {}
        for name, each in facts.items():
            cursor = cursors.get(name)
            target = None if self._target is None else self._target.get(name)
            head = each.head_seq
            if self._target is not None:
                if target is None or target.epoch != each.epoch:
                    if cursor is not None:
                        ends[name] = cursor
                    continue  # it came after this run began
                head = min(head, target.seq)
            if cursor is None or cursor.epoch != each.epoch:
                ends[name] = TopicCursor(each.epoch, each.first_seq - 1)
                continue
            if cursor.seq > each.head_seq:
                ends[name] = TopicCursor(each.epoch, each.head_seq)
                continue
            from_seq = max(cursor.seq, each.first_seq - 1)
            # What is gone before it is reported as well.
            ends[name] = TopicCursor(each.epoch, from_seq)
            lags[name] = max(head - from_seq, 0)
        for name, count in share(lags, most).items() if most is not None else lags.items():
            if count:
                ends[name] = TopicCursor(ends[name].epoch, ends[name].seq + count)
        return ends

    # -- reading

    def partitions(self, start: Any, end: Any) -> list[InputPartition]:
        before, after = decode_offset(start), decode_offset(end)
        slices = self._location.now(lambda snapshot: self._slices(snapshot, before, after))
        return [SlicePartition(group) for group in shared_out(slices, self._options)]

    def _slices(
        self,
        snapshot: LocationSnapshot,
        before: Mapping[str, TopicCursor],
        after: Mapping[str, TopicCursor],
    ) -> list[Any]:
        slices: list[Any] = []
        for name, cursor in sorted(before.items()):
            end = after.get(name)
            gap: LostSeqs | None = None
            if end is None:
                gap = LostSeqs(cursor.seq + 1, None, DROPPED)
            elif end.epoch != cursor.epoch:
                gap = LostSeqs(cursor.seq + 1, None, RECREATED)
            elif end.seq < cursor.seq:
                gap = LostSeqs(end.seq + 1, cursor.seq, REWOUND, cursor.seq - end.seq)
            slices += gap_slices(name, gap, self._options)
            if end is not None and gap is None and end.seq > cursor.seq:
                slices += self._range(snapshot, name, cursor, end.seq)
        return slices

    def _range(
        self, snapshot: LocationSnapshot, name: str, cursor: TopicCursor, last_seq: int
    ) -> list[Any]:
        """The seqs behind a cursor, up to and with `last_seq`."""
        facts = snapshot.facts(name)
        if facts is None or facts.epoch != cursor.epoch:
            gap = LostSeqs(cursor.seq + 1, last_seq, DROPPED, last_seq - cursor.seq)
            return list(gap_slices(name, gap, self._options))
        lost = upto(snapshot.gap(facts, cursor.seq), last_seq)
        slices: list[Any] = list(gap_slices(name, lost, self._options))
        slices += snapshot.slices(facts, cursor.seq + 1, last_seq, Filters())
        if facts.head_seq < last_seq:
            first = max(facts.head_seq, cursor.seq) + 1
            gap = LostSeqs(first, last_seq, REWOUND, last_seq - first + 1)
            slices += gap_slices(name, gap, self._options)
        return slices

    def read(self, partition: InputPartition) -> Iterator[Any]:
        task = TaskReader(self._location, self._options, self._columns, Filters())
        return task.read(partition)
