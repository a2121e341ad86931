"""The one place where entries get their offsets and numbers, and where commits take effect.

What is checked against is the newest there is, committed or on its way; what is read is committed
only. A refused write takes everything behind it along: the log accepts nothing after a hole, so
until all of them are answered nothing new is taken, and then the place is what it was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from headwater.core.clock import Clock
from headwater.core.errors import HeadwaterError, InvariantError, OverloadedError
from headwater.engine.machines.ahead import Ahead
from headwater.engine.machines.draft import Draft, PlainDraft
from headwater.engine.machines.requests import FlushAll, Request, Sees
from headwater.engine.machines.tables import Effect, Tables
from headwater.engine.pending import Pending
from headwater.format.machines.names import global_offset, segment_of, within_segment
from headwater.model.machines.errors import MachineError
from headwater.model.retention_clock import RetentionClock
from headwater.recovery.machines.replay import MachineLogReport
from headwater.wal.entry_log import EntryLog, EntryTicket
from headwater.wal.shard import Shard
from headwater.wal.ticket import Ticket

Published = Callable[[Sequence[Effect]], None]


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


class Change(Pending[Any]):
    """One write on its way."""

    shape: Callable[[Draft], Any] | None = None
    """What the answers come to; without it there is one, and it is that."""
    followers: Sequence[Repeat] = ()
    """Repeats that wait for what they saw to be committed."""
    writers = 1
    """How many wait for its answer."""
    is_batch = True
    """All of its entries count, or none."""

    def __init__(self, draft: Draft, place: int, sequence: int) -> None:
        self.draft = draft
        self.place = place
        self.sequence = sequence
        self.end = place

    @property
    def answer_of_all(self) -> Any:
        draft = self.draft
        return draft.answers[0] if self.shape is None else self.shape(draft)


class Book:
    def __init__(
        self,
        tables: Tables,
        clock: Clock,
        found: MachineLogReport,
        *,
        segment_bytes: int,
        versions_max: int,
        published: Published,
        plain_entries: bool = False,
    ) -> None:
        self.tables = tables
        position = found.position
        self._clock = clock
        self.retention = RetentionClock(clock.wall_ms(), clock.monotonic_us())
        self.segment_bytes = segment_bytes
        self._found_segment = position.segment
        self._found_bytes = min(position.file_bytes or segment_bytes, segment_bytes)
        """What the segment takes that was there at the start: it may have been made with another
        setting."""
        self._versions_max = versions_max
        self._published = published
        self._make_draft = PlainDraft if plain_entries else Draft
        self.ahead = Ahead()
        self._in_flight: deque[Change] = deque()
        self._place = global_offset(position.segment, position.offset)
        self._sequence = position.next_sequence
        self.committed_place = self._place
        """Everything before this is committed."""
        self.committed_sequence = self._sequence
        """Number of the next entry to be committed."""
        self.latest_offset = found.last_offset
        self.oldest_segment = position.oldest
        self.first_sequence = {position.segment: self._sequence} | found.first_sequences
        """Number of the first entry of a segment, where known."""
        self._failure: HeadwaterError | None = None
        self._flushing = False
        self._later: deque[Later] = deque()
        self.log: EntryLog | None = None
        self.shard: Shard | None = None
        self.send_gathered: Callable[[], None] | None = None
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
        if self.send_gathered is not None:
            self.send_gathered()
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
            except Exception as error:  # a mistake of ours: nobody is left without an answer (I15)
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
    def next_place(self) -> tuple[int, int]:
        """Where the next entry goes if it fits there, and its number."""
        return self._place, self._sequence

    def is_within_segment(self, place: int, size: int) -> bool:
        is_found = segment_of(place) == self._found_segment
        room = self._found_bytes if is_found else self.segment_bytes
        return within_segment(place) + size <= room

    def _draft(self, requests: Sequence[Request], sees: Sees | None) -> Change:
        """The entries, at the place they will have; in the next segment if they do not fit."""
        place = self._place
        draft = self._fill(requests, place, sees)
        if within_segment(place) and not self.is_within_segment(place, draft.size):
            place = global_offset(segment_of(place) + 1, 0)
            draft = self._fill(requests, place, sees)
        return Change(draft, place, self._sequence)

    def begin_draft(self, place: int) -> Draft:
        assert self.log is not None
        return self._make_draft(
            self.tables,
            self.ahead,
            place,
            self.log.synced_offset,
            self._clock.wall_ms(),
            self.now_ms,
            self._versions_max,
        )

    def _fill(self, requests: Sequence[Request], place: int, sees: Sees | None) -> Draft:
        draft = self.begin_draft(place)
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

    def send(self, change: Change, *, essential: bool = False) -> None:
        """Raises when the log refuses it; nothing is kept then."""
        assert self.shard is not None
        draft = change.draft
        body = draft.encode(change.sequence, is_batch=change.is_batch)
        entries = len(draft.effects)
        change.end = change.place + len(body)
        ticket = EntryTicket(body, entries, change.place, essential=essential, context=change)
        if change.writers != 1:
            ticket.writers = change.writers
        self.shard.submit(ticket)
        draft.note_in(self.ahead)
        self._in_flight.append(change)
        if not within_segment(change.place):
            self.first_sequence[segment_of(change.place)] = change.sequence
        self._place = change.end
        self._sequence += entries

    def answer_without_entry(self, change: Change) -> Pending[Any]:
        """For repeats: answered once all that is on its way now is committed."""
        repeat = Repeat(change.answer_of_all)
        if self._in_flight:
            last = self._in_flight[-1]
            last.followers = [*last.followers, repeat]
        else:
            repeat.succeed(repeat.prepared)
        return repeat

    # -- what the log says, as the owner

    def take(self, tickets: Sequence[Ticket]) -> None:
        """These were answered, in the order they were sent."""
        effects: list[Effect] = []
        done: list[Change] = []
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

    def _commit(self, change: Change, effects: list[Effect]) -> None:
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
        self.committed_place = change.end
        self.committed_sequence = change.sequence + len(made)
        self.latest_offset = made[-1].offset
        self._flushing = False

    def _refuse(self, change: Change, error: HeadwaterError) -> None:
        if self._failure is None:
            self._failure = error
        if not self._in_flight:
            # The last one behind the hole: nothing can be written after it any more.
            self._failure = None
            self._place, self._sequence = self.committed_place, self.committed_sequence
            self.ahead.clear()
            self._flushing = False
        change.fail(error)
        for follower in change.followers:
            follower.fail(error)
