"""Sending chunks so that each is in the topic exactly once, however many tasks send the same.

Spark runs a task again when it failed and runs it twice when it is slow. Every attempt cuts the
same chunks and sends them under the same keys, and the server answers a key it remembers without
writing. It forgets a key after the topic's `idempotency_window_ms`, so one rule is kept here:

    A chunk is sent only if no attempt can have written it so long ago that its key is forgotten.

Before its first record an attempt writes a claim into the ledger. As long as the first claim is
young, so are all keys. Later on, an attempt that is alone reads in the ledger whether it still is;
one that is not scans the topic itself, where the first record of every chunk has a mark. Both hold
for a quarter of the window; a request takes less than another.

What is found under a key must be what would be sent: the mark has a digest of the rows. Rows that
came out differently are not written over and not written twice: `RowsDifferError`.

When the driver dies Spark runs the whole batch again, days later perhaps, and nothing promises that
it cuts the rows into the same partitions. Such a run sends nothing by itself: its rows go to the
driver, which compares them with what is there, see `topic_writer`. Tasks of the earlier run that
are still alive read the ledger every few seconds, and stop.

See docs/decisions/0016-the-sink-keeps-a-ledger-beside-the-topic.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headwater.client.errors import NoAnswerError
from headwater.client.retry import may_retry
from headwater.config.topic import DEFAULT_TOPIC_SETTINGS
from headwater.core.clock import Clock
from headwater.core.errors import (
    HeadwaterError,
    InvalidRequestError,
    RowsDifferError,
    StaleWriterError,
    TopicNotFoundError,
    WriteUncertainError,
)
from headwater.spark.sink.chunks import Mark, SinkChunk, find_marks, mark_of
from headwater.spark.sink.ledger import (
    CLAIM,
    DIFFERS,
    DONE,
    LedgerEntry,
    SinkLedger,
    WriteTask,
    of_batch,
)

if TYPE_CHECKING:
    from headwater.client import Appended, Client

WINDOW_MS_LEAST: Final = 60_000
QUARTER: Final = 4
CHECK_US: Final = 5_000_000
"""How long an answer of the ledger is believed."""
GIVE_UP_S: Final = 5.0
"""How long one call tries; after that the task reads the ledger before it goes on."""
TIMEOUT_S: Final = 10.0
FENCE_MS: Final = 20_000
"""After this, nothing comes any more from a run that a later one has replaced: what the ledger said
before (CHECK_US), the last call (GIVE_UP_S) and its last request (TIMEOUT_S)."""
PATIENCE_US: Final = 120_000_000
"""How long a chunk is tried before the task fails; a server may be restarted meanwhile."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What the ledger says when a task begins."""

    done: bool
    """The whole write is there already."""
    compare: bool
    """An earlier run may have written other chunks: the driver must compare the rows."""
    claimed_seq: int
    """Where this batch begins in the ledger."""
    run_ts: int
    """When this run of the batch began, by the server's clock."""


class ChunkSender:
    """One task's chunks into one topic."""

    def __init__(
        self,
        client: Client,
        topic: str,
        task: WriteTask,
        clock: Clock,
        *,
        durability: str | None = None,
        trust: bool = False,
    ) -> None:
        self._client = client
        self._topic = topic
        self._task = task
        self._clock = clock
        self._durability = durability
        self._trust = trust
        self._ledger = SinkLedger(client, topic, task.writer)
        self._written: dict[int, Mark] = {}
        self._alone = True
        self._from_seq = 0
        self._quarter_us = 0
        self._checked_us = 0
        self._safe_until_us = 0
        self.sent = 0
        self.skipped = 0

    def begin(self) -> Standing:
        """Write the claim, and see who was here before. Nothing is sent before this."""
        head, window_ms = self._state()
        task = self._task
        self._quarter_us = window_ms * 1_000 // QUARTER
        self._checked_us = self._clock.monotonic_us()
        seq = self._ledger.add(CLAIM, task, head)
        entries = self._ledger.entries()
        check_name(self._topic, task, entries)
        batch = of_batch(entries, task.batch)
        check_run(self._topic, task, batch)
        run = [entry for entry in batch if entry.kind == CLAIM and entry.run == task.run]
        claims = self._claims(batch)
        mine = next(entry for entry in claims if entry.seq == seq)
        self._alone = len(claims) == 1
        self._from_seq = min(entry.head for entry in claims)
        age_us = (mine.ts - claims[0].ts) * 1_000
        self._safe_until_us = self._checked_us + self._quarter_us - age_us
        # Decided by the ledger's order alone, so that all tasks of a run decide alike.
        before = [entry for entry in batch if entry.seq < run[0].seq]
        return Standing(
            done=any(entry.kind == DONE for entry in entries),
            compare=any(entry.kind == DIFFERS or not self._trust for entry in before),
            claimed_seq=min(entry.seq for entry in batch),
            run_ts=run[0].ts,
        )

    def send(self, chunk: SinkChunk) -> None:
        """Have this chunk in the topic: once."""
        mark = self._mark(chunk)
        started_us = self._clock.monotonic_us()
        while True:
            self._make_sure()
            written = self._written.get(chunk.number)
            if written is not None:
                self._compare(mark, written)
                self.skipped += 1
                return
            try:
                answer = self._append(chunk, mark)
            except HeadwaterError as error:
                if not may_retry(error):
                    raise
                if self._clock.monotonic_us() - started_us > PATIENCE_US:
                    raise
                # In doubt, only the topic itself can answer.
                self._alone = self._alone and not isinstance(error, NoAnswerError)
                self._checked_us = self._safe_until_us = 0
                continue
            if answer.deduped:
                self._compare(mark, self._mark_at(answer.first_seq))
                self.skipped += 1
            else:
                self.sent += 1
            return

    def _append(self, chunk: SinkChunk, mark: Mark) -> Appended:
        settings = None if self._durability is None else {"durability": self._durability}
        return self._client.append(
            self._topic, chunk.body(mark), idempotency_key=mark.key, settings=settings
        )

    # -- the rule

    def _make_sure(self) -> None:
        """This run is the latest, and no key of an earlier attempt is about to be forgotten."""
        now_us = self._clock.monotonic_us()
        if now_us - self._checked_us < CHECK_US and now_us < self._safe_until_us:
            return
        batch = self._ledger.entries(self._task.batch)
        check_run(self._topic, self._task, batch)
        self._checked_us = now_us
        if self._alone:
            self._alone = len(self._claims(batch)) == 1
        if now_us >= self._safe_until_us:
            if not self._alone:
                self._scan()
            self._safe_until_us = now_us + self._quarter_us

    def _scan(self) -> None:
        task = self._task
        for seq, mark in find_marks(self._client, self._topic, self._from_seq, task.writer):
            if mark.is_of(task.writer, task.batch, task.partition):
                self._written[mark.number] = mark
            self._from_seq = seq + mark.count - 1

    def _claims(self, batch: list[LedgerEntry]) -> list[LedgerEntry]:
        partition = self._task.partition
        return [entry for entry in batch if entry.kind == CLAIM and entry.partition == partition]

    # -- what is under a key

    def _mark(self, chunk: SinkChunk) -> Mark:
        task = self._task
        return Mark(
            self._topic,
            task.writer,
            task.batch,
            task.partition,
            chunk.number,
            chunk.count,
            chunk.digest,
        )

    def _mark_at(self, seq: int) -> Mark | None:
        diff = self._client.diff(self._topic, seq - 1, limit=1)
        record = diff.records[0] if diff.records else None
        if record is None or record.seq != seq:
            raise WriteUncertainError(
                f"record {seq} of {self._topic} was written by an earlier attempt and is gone "
                "since, so what it was cannot be compared: nothing was written. Give the topic a "
                "larger cap or age limit, and write the batch anew under another id if it must be "
                "there"
            )
        return mark_of(record, self._topic)

    def _compare(self, mine: Mark, theirs: Mark | None) -> None:
        if mine == theirs:
            return
        self._ledger.add(DIFFERS, self._task)
        raise RowsDifferError(
            f"an earlier attempt at partition {mine.partition} of batch {mine.batch} had other "
            f"rows than this one, or had them in other chunks, and has written some of them to "
            f"{self._topic}. Nothing was doubled. Run it again: the rows are then compared one by "
            "one. (Rows come out alike if the query does not depend on chance, on the order of a "
            "shuffle or on the clock, and batchRecords and batchBytes stay as they are.)"
        )

    def _state(self) -> tuple[int, int]:
        """The head of the topic, and how long it remembers keys."""
        try:
            state = self._client.state(self._topic)
        except TopicNotFoundError:
            return 0, DEFAULT_TOPIC_SETTINGS.idempotency_window_ms
        window_ms = int(state.config["idempotency_window_ms"])
        if window_ms < WINDOW_MS_LEAST:
            raise InvalidRequestError(
                f"{self._topic} remembers keys for {window_ms} ms, and a write that may be sent "
                f"twice needs {WINDOW_MS_LEAST}: set its idempotency_window_ms"
            )
        durability = state.config["durability"]
        if self._durability not in (None, durability):
            raise InvalidRequestError(
                f"{self._topic} has the durability class {durability}, not {self._durability}: "
                "change the topic's setting, or leave the option out"
            )
        return state.head_seq, window_ms


def check_run(topic: str, task: WriteTask, batch: list[LedgerEntry]) -> None:
    """Refuse to go on when a later run of the batch has begun."""
    runs = list(dict.fromkeys(entry.run for entry in batch if entry.kind == CLAIM))
    if runs[-1:] != [task.run]:
        raise StaleWriterError(
            f"batch {task.batch} of {task.writer} is being written to {topic} by a later run; "
            "this one stops and leaves the rest to it"
        )


def check_name(topic: str, task: WriteTask, entries: list[LedgerEntry]) -> None:
    """Refuse a checkpoint that is not the one this writer's earlier batches came from."""
    others = {entry.query for entry in entries} - {task.query}
    if others:
        raise StaleWriterError(
            f"the app id {task.writer!r} has written to {topic} from another checkpoint (query "
            f"{min(others)}, now {task.query}): records would be doubled or left out. Go on with "
            "that checkpoint, or choose another app id if all of it is to be written again"
        )
    latest = max((entry.batch for entry in entries), default=task.batch)
    if latest > task.batch:
        raise StaleWriterError(
            f"{task.writer} has already written batch {latest} to {topic}, and this is batch "
            f"{task.batch}: the checkpoint is an older copy. Records would be doubled; go on with "
            "the newest checkpoint, or with a new one"
        )
