"""Events that came in one turn of the owner's loop are one ticket of the log.

Sixty connections that send an event each ask sixty questions and get sixty answers. In between they
are one draft, one ticket and one commit: what is done for each of them alone is to look at its
instance and to print its answer. Each stands for itself: its entry is no part of a batch, and what
the rules refuse is refused to whoever asked for it. Whatever else is asked goes behind what came
before it. See docs/decisions/0022-single-writes-of-one-turn-are-one-append.md.

Keeps I2, I15.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from headwater.core.errors import HeadwaterError
from headwater.core.units import MIB
from headwater.engine.machines.answers import Applied
from headwater.engine.machines.book import Book, Change, Repeat
from headwater.engine.machines.draft import Draft
from headwater.engine.machines.requests import ApplyEvent, Sees
from headwater.engine.owner import Owner
from headwater.engine.pending import Pending

MEMBERS_MAX: Final = 512
GROUP_BYTES: Final = 1 * MIB
"""A ticket of so many bytes is sent. What is done once for it matters little beside them."""


class EventAsked:
    """An event, and whoever waits for its answer. Exactly one of the two is called, once."""

    __slots__ = ("request", "sees")

    def __init__(self, request: ApplyEvent, sees: Sees | None) -> None:
        self.request = request
        self.sees = sees

    def succeed(self, answer: Applied) -> None:
        """Never raises: others are told after this one, and the engine is no place for its
        mistakes. Nor does `fail`."""
        raise NotImplementedError

    def fail(self, error: Exception) -> None:
        raise NotImplementedError


class EventGroup(Change):
    """Events of many on their way, in the order they came."""

    is_batch = False

    def __init__(
        self, draft: Draft, place: int, sequence: int, members: Sequence[EventAsked]
    ) -> None:
        super().__init__(draft, place, sequence)
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


Told = tuple[EventAsked, Applied | None, Exception | None]


class Gathering:
    """Filled by connections, emptied when the loop has read from all that had something. The
    owner's."""

    def __init__(self, book: Book, owner: Owner) -> None:
        self._book = book
        self._owner = owner
        self._waiting: list[EventAsked] = []
        book.send_gathered = self.flush

    def add(self, asked: EventAsked) -> None:
        self._waiting.append(asked)
        if len(self._waiting) == 1:
            self._owner.post(self.flush)

    def flush(self) -> None:
        """Send what is here. Nobody is told before all of it is on its way: who is told may come
        back at once, and must not get in between."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        told: list[Told] = []
        while waiting:
            count = self._send(waiting, told)
            waiting = waiting[count:]
        for asked, answer, error in told:
            if answer is not None:
                asked.succeed(answer)
            elif error is not None:
                asked.fail(error)

    def _send(self, waiting: Sequence[EventAsked], told: list[Told]) -> int:
        """One ticket of the first of them; how many those are. Who is answered without an entry
        is added to `told`."""
        book = self._book
        came = waiting[:MEMBERS_MAX]
        refused: list[Told] = []
        try:
            book.require_ready()
            place, sequence = book.next_place
            draft = book.begin_draft(place)
            members = _fill(draft, came, refused)
            count = len(members) + len(refused)
            if not members:
                told += refused
                return count
            if book.is_within_segment(place, draft.size):
                group = EventGroup(draft, place, sequence, members)
                if draft.effects:
                    book.send(group)
                else:
                    self._repeat(group, told)
                told += refused
                return count
        except HeadwaterError:
            pass  # nothing of it was taken; one by one, each gets the answer that is its own
        except Exception as error:  # a mistake of ours: nobody is left without an answer (I15)
            told += [(each, None, error) for each in came]
            return len(came)
        for each in came:
            self._send_alone(each, told)
        return len(came)

    def _repeat(self, group: EventGroup, told: list[Told]) -> None:
        """All of them are repeats: answered once what they saw is committed."""
        repeat = self._book.answer_without_entry(group)
        answers = group.answer_of_all
        if repeat.done:
            told += [
                (each, answer, None) for each, answer in zip(group.members, answers, strict=True)
            ]
        else:
            repeat.on_done = partial(_pass_on, group)

    def _send_alone(self, asked: EventAsked, told: list[Told]) -> None:
        try:
            pending = self._book.submit((asked.request,), sees=asked.sees)
        except Exception as error:
            told.append((asked, None, error))
            return
        if pending.done:
            told.append((asked, pending.result, pending.error))
        else:
            pending.on_done = partial(_answer, asked)


def _fill(draft: Draft, came: Sequence[EventAsked], refused: list[Told]) -> list[EventAsked]:
    """Those that are in the draft now. It may be full before all of them were looked at."""
    members: list[EventAsked] = []
    apply, answers = draft.apply_event, draft.answers
    for each in came:
        draft.sees = each.sees
        try:
            answers.append(apply(each.request))
        except Exception as error:
            refused.append((each, None, error))
            continue
        members.append(each)
        if draft.size >= GROUP_BYTES:
            break
    return members


def _pass_on(group: EventGroup, repeat: Repeat | Pending[Any]) -> None:
    if repeat.error is not None:
        group.fail(repeat.error)
    else:
        group.succeed(repeat.result)


def _answer(asked: EventAsked, pending: Pending[Any]) -> None:
    if pending.error is not None:
        asked.fail(pending.error)
    else:
        asked.succeed(pending.answer())
