"""Events that came in one turn of the owner's loop are one ticket of the log.

Sixty connections that send one event each get sixty answers. In between, the events are one draft,
one ticket and one commit: for each event alone the engine only reads its instance and prints its
answer. Each event stands for itself: its entry is no part of a batch, and a refusal goes to the
connection that sent it. Other requests are sent behind the events that came before them. See
docs/decisions/0039-a-turn-is-one-submission.md.

Keeps I2, I15.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from headwater.api.machine_requests import ApplyEvent, Sees
from headwater.core.errors import HeadwaterError
from headwater.engine.machines.answers import Applied
from headwater.engine.machines.book import Book, MachineChange, Repeat
from headwater.engine.machines.draft import Draft
from headwater.engine.owner import Owner, Pending
from headwater.engine.turn import SUBMISSION_BYTES, WriteTurn


class PendingEvent:
    """An event whose sender waits for the answer. Exactly one of the methods is called, once."""

    __slots__ = ("request", "sees")
    writers = 1
    size = 0
    """Its entry is made when it is sent; so is its size known then."""

    def __init__(self, request: ApplyEvent, sees: Sees | None) -> None:
        self.request = request
        self.sees = sees

    def succeed(self, answer: Applied) -> None:
        """Never raises: others get their answers after this one, and the engine cannot handle an
        error of theirs. Nor does `fail`."""
        raise NotImplementedError

    def fail(self, error: Exception) -> None:
        raise NotImplementedError


class EventGroup(MachineChange):
    """Events of many senders on their way, in the order they came."""

    is_batch = False

    def __init__(
        self, draft: Draft, offset: int, sequence: int, members: Sequence[PendingEvent]
    ) -> None:
        super().__init__(draft, offset, sequence)
        self.members = members
        self.writers = len(members)

    @property
    def answer_of_all(self) -> Any:
        return self.draft.answers

    def succeed(self, result: Any) -> None:
        self.result = result
        for member, answer in zip(self.members, result, strict=True):
            member.succeed(answer)

    def fail(self, error: HeadwaterError) -> None:
        self.error = error
        for member in self.members:
            member.fail(error)


Response = tuple[PendingEvent, Applied | None, Exception | None]


class EventBatcher:
    """Connections add events; at the end of the turn they are sent. The owner's."""

    def __init__(self, book: Book, owner: Owner, writers_max: int) -> None:
        self._book = book
        turn: WriteTurn[PendingEvent] = WriteTurn(owner, self._submit, writers_max)
        self.add = turn.add
        self.send = book.flush_batcher = turn.send

    def _submit(self, waiting: list[PendingEvent]) -> None:
        """The answers go out after all of them are on their way: a sender that gets its answer may
        send again at once, and must not get in between."""
        responses: list[Response] = []
        while waiting:
            count = self._send(waiting, responses)
            waiting = waiting[count:]
        for event, answer, error in responses:
            if answer is not None:
                event.succeed(answer)
            elif error is not None:
                event.fail(error)

    def _send(self, came: Sequence[PendingEvent], responses: list[Response]) -> int:
        """One ticket of the first of them; how many those are. Answers that need no entry are
        added to `responses`."""
        book = self._book
        refused: list[Response] = []
        try:
            book.require_ready()
            offset, sequence = book.next_position
            draft = book.begin_draft(offset)
            members = _fill(draft, came, refused)
            count = len(members) + len(refused)
            if not members:
                responses += refused
                return count
            if book.is_within_segment(offset, draft.size):
                group = EventGroup(draft, offset, sequence, members)
                if draft.effects:
                    book.send(group)
                else:
                    self._repeat(group, responses)
                responses += refused
                return count
        except HeadwaterError:
            pass  # nothing of it was taken; one by one, each gets the answer that is its own
        except Exception as error:  # a bug: every sender gets an answer all the same (I15)
            responses += [(each, None, error) for each in came]
            return len(came)
        for each in came:
            self._send_alone(each, responses)
        return len(came)

    def _repeat(self, group: EventGroup, responses: list[Response]) -> None:
        """All of them are repeats: answered once what they saw is committed."""
        repeat = self._book.answer_without_entry(group)
        answers = group.answer_of_all
        if repeat.done:
            responses += [
                (each, answer, None) for each, answer in zip(group.members, answers, strict=True)
            ]
        else:
            repeat.on_done = partial(_pass_on, group)

    def _send_alone(self, event: PendingEvent, responses: list[Response]) -> None:
        try:
            pending = self._book.submit((event.request,), sees=event.sees)
        except Exception as error:
            responses.append((event, None, error))
            return
        if pending.done:
            responses.append((event, pending.result, pending.error))
        else:
            pending.on_done = partial(_answer, event)


def _fill(
    draft: Draft, came: Sequence[PendingEvent], refused: list[Response]
) -> list[PendingEvent]:
    """Those that are in the draft now. It may be full before all of them are in it."""
    members: list[PendingEvent] = []
    apply, answers = draft.apply_event, draft.answers
    for each in came:
        draft.sees = each.sees
        try:
            answers.append(apply(each.request))
        except Exception as error:
            refused.append((each, None, error))
            continue
        members.append(each)
        if draft.size >= SUBMISSION_BYTES:
            break
    return members


def _pass_on(group: EventGroup, repeat: Repeat | Pending[Any]) -> None:
    if repeat.error is not None:
        group.fail(repeat.error)
    else:
        group.succeed(repeat.result)


def _answer(event: PendingEvent, pending: Pending[Any]) -> None:
    if pending.error is not None:
        event.fail(pending.error)
    else:
        event.succeed(pending.answer())
