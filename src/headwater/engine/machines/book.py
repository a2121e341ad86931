"""The only module that gives entries their offsets and numbers, and makes commits take effect.

What is checked against is the newest there is, committed or on its way; what is read is committed
only. A refused write takes everything behind it along: the log accepts nothing after a hole, so
until all of them are answered the book takes nothing new, and then the next offset is what it was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from headwater.api.machine_requests import (
    ApplyEvent,
    CreateInstance,
    DeleteInstance,
    FlushAll,
    MigrateInstance,
    Ping,
    PutMachine,
    ReadInstance,
    Request,
    Sees,
)
from headwater.core.clock import Clock
from headwater.core.errors import HeadwaterError, InvariantError, OverloadedError
from headwater.engine.machines.answers import BatchDone, OperationOutcome
from headwater.engine.machines.draft import Draft, PlainDraft
from headwater.engine.machines.tables import Ahead, EntryEffect, Tables
from headwater.engine.owner import Pending
from headwater.format.machines.names import global_offset, segment_of, within_segment
from headwater.model.machines.errors import MachineError, bad_request
from headwater.model.retention import RetentionClock
from headwater.recovery.machines.replay import MachineLogReport
from headwater.wal.entry_log import EntryLog, EntryTicket
from headwater.wal.shard import Shard
from headwater.wal.ticket import Ticket

Published = Callable[[Sequence[EntryEffect]], None]
BATCH_OPERATIONS_MAX: Final = 100
BATCH_MODES: Final = ("atomic", "best_effort")
BATCHED: Final = (
    PutMachine, CreateInstance, ApplyEvent, DeleteInstance, MigrateInstance, ReadInstance, Ping,
)  # fmt: skip


class Repeat(Pending[Any]):
    """An answer without an entry, given once all that it saw is committed."""

    def __init__(self, answer: Any) -> None:
        self.prepared = answer


class Later(Pending[Any]):
    """A write that waits: it is to be alone, or one that is to be alone came before it."""

    def __init__(
        self,
        requests: Sequence[Request],
        shape: Callable[[Draft], Any] | None,
        sees: Sees | None,
        essential: bool,
    ) -> None:
        self.requests = requests
        self.shape = shape
        self.sees = sees
        self.essential = essential

    @property
    def is_alone(self) -> bool:
        return type(self.requests[0]) is FlushAll

    def follow(self, pending: Pending[Any]) -> None:
        """It is begun: what comes of that is the answer."""
        if pending.error is not None:
            self.fail(pending.error)
        elif pending.done:
            self.succeed(pending.result)
        else:
            pending.on_done = self.follow


class MachineChange(Pending[Any]):
    """One write on its way."""

    shape: Callable[[Draft], Any] | None = None
    """What the answers come to; without it there is one, and it is that."""
    followers: Sequence[Repeat] = ()
    """Repeats that wait for what they saw to be committed."""
    writers = 1
    """How many wait for its answer."""
    is_batch = True
    """All of its entries count, or none."""

    def __init__(self, draft: Draft, offset: int, sequence: int) -> None:
        self.draft = draft
        self.offset = offset
        self.sequence = sequence
        self.end = offset

    @property
    def answer_of_all(self) -> Any:
        draft = self.draft
        return draft.answers[0] if self.shape is None else self.shape(draft)


class Book:
    def __init__(
        self,
        tables: Tables,
        clock: Clock,
        recovered: MachineLogReport,
        *,
        segment_bytes: int,
        versions_max: int,
        published: Published,
        plain_entries: bool = False,
    ) -> None:
        self.tables = tables
        position = recovered.position
        self._clock = clock
        self.retention = RetentionClock(clock.wall_ms(), clock.monotonic_us())
        self.segment_bytes = segment_bytes
        self._recovered_segment = position.segment
        self._recovered_segment_bytes = min(position.file_bytes or segment_bytes, segment_bytes)
        """What the segment takes that was there at the start: it may have been made with another
        setting."""
        self._versions_max = versions_max
        self._published = published
        self._make_draft = PlainDraft if plain_entries else Draft
        self.ahead = Ahead()
        self._in_flight: deque[MachineChange] = deque()
        self._next_offset = global_offset(position.segment, position.offset)
        self._sequence = position.next_sequence
        self.committed_offset = self._next_offset
        """Everything before this is committed."""
        self.committed_sequence = self._sequence
        """Number of the next entry to be committed."""
        self.latest_offset = recovered.last_offset
        self.oldest_segment = position.oldest
        self.first_sequence = {position.segment: self._sequence} | recovered.first_sequences
        """Number of the first entry of a segment, where known."""
        self._failure: HeadwaterError | None = None
        self._flushing = False
        self._later: deque[Later] = deque()
        self.log: EntryLog | None = None
        self.shard: Shard | None = None
        self.flush_batcher: Callable[[], None] | None = None
        """Sends what came before whatever is submitted now."""

    def now_ms(self) -> int:
        """The time by which instances expire."""
        return self.retention.now_ms(self._clock.wall_ms(), self._clock.monotonic_us())

    def submit(
        self,
        requests: Sequence[Request],
        *,
        shape: Callable[[Draft], Any] | None = None,
        sees: Sees | None = None,
        essential: bool = False,
    ) -> Pending[Any]:
        """All of the requests as one batch. Raises what the rules refuse; nothing is kept then."""
        if self.flush_batcher is not None:
            self.flush_batcher()
        flushes = type(requests[0]) is FlushAll
        if self._flushing or self._later or (flushes and self._in_flight):
            later = Later(requests, shape, sees, essential)
            self._later.append(later)
            return later
        return self._submit(requests, shape, sees, essential)

    def _submit(
        self,
        requests: Sequence[Request],
        shape: Callable[[Draft], Any] | None,
        sees: Sees | None,
        essential: bool,
    ) -> Pending[Any]:
        flushes = type(requests[0]) is FlushAll
        if self._failure is not None:
            raise self._failure
        change = self._draft(requests, sees)
        if shape is not None:
            change.shape = shape
        if not change.draft.effects:
            return self.answer_without_entry(change)
        self.send(change, essential=essential)
        self._flushing = flushes
        return change

    def _begin_later(self) -> None:
        """What had to wait, in its order, as far as nothing else is to be alone."""
        while self._later and not self._flushing:
            if self._later[0].is_alone and self._in_flight:
                return
            later = self._later.popleft()
            try:
                pending = self._submit(later.requests, later.shape, later.sees, later.essential)
            except HeadwaterError as error:
                later.fail(error)
            except Exception as error:  # a bug: the caller gets an answer all the same (I15)
                later.fail(InvariantError(f"a write that waited could not begin: {error!r}"))
            else:
                later.follow(pending)

    def require_ready(self) -> None:
        """Raises when nothing new is sent at once for now."""
        if self._failure is not None:
            raise self._failure
        if self._flushing or self._later:
            raise OverloadedError("other writes are under way; try again", retry_after_ms=10)

    @property
    def next_position(self) -> tuple[int, int]:
        """Where the next entry goes if it fits there, and its number."""
        return self._next_offset, self._sequence

    def is_within_segment(self, offset: int, size: int) -> bool:
        is_recovered = segment_of(offset) == self._recovered_segment
        room = self._recovered_segment_bytes if is_recovered else self.segment_bytes
        return within_segment(offset) + size <= room

    def _draft(self, requests: Sequence[Request], sees: Sees | None) -> MachineChange:
        """The entries, at the offset they will have; in the next segment if they do not fit."""
        offset = self._next_offset
        draft = self._fill(requests, offset, sees)
        if within_segment(offset) and not self.is_within_segment(offset, draft.size):
            offset = global_offset(segment_of(offset) + 1, 0)
            draft = self._fill(requests, offset, sees)
        return MachineChange(draft, offset, self._sequence)

    def begin_draft(self, offset: int) -> Draft:
        assert self.log is not None
        return self._make_draft(
            self.tables,
            self.ahead,
            offset,
            self.log.synced_offset,
            self._clock.wall_ms(),
            self.now_ms,
            self._versions_max,
        )

    def _fill(self, requests: Sequence[Request], offset: int, sees: Sees | None) -> Draft:
        draft = self.begin_draft(offset)
        if sees is not None:
            draft.sees = sees
        if len(requests) == 1:
            draft.add(requests[0])
            return draft
        for index, request in enumerate(requests):
            try:
                draft.add(request)
            except MachineError as error:
                raise MachineError(
                    error.code,
                    f"operation {index}: {error}",
                    details={**error.details, "operation": index},
                ) from error
        return draft

    def send(self, change: MachineChange, *, essential: bool = False) -> None:
        """Raises when the log refuses it; nothing is kept then."""
        assert self.shard is not None
        draft = change.draft
        body = draft.encode(change.sequence, is_batch=change.is_batch)
        entries = len(draft.effects)
        change.end = change.offset + len(body)
        ticket = EntryTicket(body, entries, change.offset, essential=essential, context=change)
        if change.writers != 1:
            ticket.writers = change.writers
        self.shard.submit(ticket)
        draft.note_in(self.ahead)
        self._in_flight.append(change)
        if not within_segment(change.offset):
            self.first_sequence[segment_of(change.offset)] = change.sequence
        self._next_offset = change.end
        self._sequence += entries

    def answer_without_entry(self, change: MachineChange) -> Pending[Any]:
        """For repeats: answered once all that is on its way now is committed."""
        repeat = Repeat(change.answer_of_all)
        if self._in_flight:
            last = self._in_flight[-1]
            last.followers = [*last.followers, repeat]
        else:
            repeat.succeed(repeat.prepared)
        return repeat

    # -- answers of the log, as the owner

    def take(self, tickets: Sequence[Ticket]) -> None:
        """These were answered, in the order they were sent."""
        effects: list[EntryEffect] = []
        done: list[MachineChange] = []
        in_flight = self._in_flight
        for ticket in tickets:
            change = ticket.context
            if not in_flight or in_flight.popleft() is not change:
                raise InvariantError("the log answered out of order")
            if ticket.error is not None:
                self._refuse(change, ticket.error)
                continue
            self._commit(change, effects)
            done.append(change)
        if effects:
            self._published(effects)
        for change in done:
            change.succeed(change.answer_of_all)
            for follower in change.followers:
                follower.succeed(follower.prepared)
        if self._later:
            self._begin_later()

    def _commit(self, change: MachineChange, effects: list[EntryEffect]) -> None:
        if self._failure is not None:
            raise InvariantError("the log wrote behind a refused write")
        draft = change.draft
        made = draft.effects
        for effect in made:
            self.tables.take(effect)
        effects += made
        if self._in_flight:
            draft.forget_in(self.ahead)
        else:  # nothing is on its way any more
            self.ahead.clear()
        self.committed_offset = change.end
        self.committed_sequence = change.sequence + len(made)
        self.latest_offset = made[-1].offset
        self._flushing = False

    def _refuse(self, change: MachineChange, error: HeadwaterError) -> None:
        if self._failure is None:
            self._failure = error
        if not self._in_flight:
            # The last one behind the hole: nothing can be written after it any more.
            self._failure = None
            self._next_offset, self._sequence = self.committed_offset, self.committed_sequence
            self.ahead.clear()
            self._flushing = False
        change.fail(error)
        for follower in change.followers:
            follower.fail(error)


def check_batch(operations: Sequence[Request], mode: str) -> None:
    if mode not in BATCH_MODES:
        raise bad_request(f"mode must be one of {', '.join(BATCH_MODES)}")
    if not 1 <= len(operations) <= BATCH_OPERATIONS_MAX:
        raise bad_request(f"a batch has 1 to {BATCH_OPERATIONS_MAX} operations")
    if not all(isinstance(operation, BATCHED) for operation in operations):
        raise bad_request("this operation cannot be part of a batch")


def all_answers(draft: Draft) -> BatchDone:
    return BatchDone("atomic", [OperationOutcome(answer) for answer in draft.answers])


class BestEffort(Pending[BatchDone]):
    """A batch whose operations stand for themselves: each has its answer, and all are given
    together."""

    def __init__(self, book: Book, operations: Sequence[Request], sees: Sees | None) -> None:
        self._book = book
        self._operations = operations
        self._sees = sees
        self._outcomes: list[OperationOutcome | None] = [None] * len(operations)
        self._open = len(operations)

    def start(self) -> BestEffort:
        for index, operation in enumerate(self._operations):
            try:
                pending = self._book.submit([operation], sees=self._sees)
            except HeadwaterError as error:
                self._complete(index, OperationOutcome(None, error))
                continue
            if pending.done:
                self._answered(index, pending)
            else:
                pending.on_done = partial(self._answered, index)
        return self

    def _answered(self, index: int, pending: Pending[Any]) -> None:
        self._complete(index, OperationOutcome(pending.result, pending.error))

    def _complete(self, index: int, outcome: OperationOutcome) -> None:
        self._outcomes[index] = outcome
        self._open -= 1
        if not self._open:
            self.succeed(BatchDone("best_effort", [each for each in self._outcomes if each]))
