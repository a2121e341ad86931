"""Groups of writes, whoever gathered them, become one submission to the engine.

A group is what requests of one key bring to one topic, with one answer for all of them. The groups
of a turn come from the connections of this process, or from many gateways at once: each topic is
written to once, and a group gets the seqs behind those of the group before it.

Keeps I2, I15.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from headwater.config.topic import Discard
from headwater.core.errors import HeadwaterError, OverloadedError
from headwater.engine.owner import Pending
from headwater.engine.topics.publisher import Write
from headwater.engine.topics.record_encoding import EncodedRecords

if TYPE_CHECKING:
    from headwater.core.results import Appended
    from headwater.engine.engine import Engine
    from headwater.engine.state.topic import Topic
    from headwater.server.access.quotas import Usage
    from headwater.server.backend import Backend

_REJECT: Final = Discard.REJECT


class WriteGroup:
    """Writes of one key to one topic. Told exactly once what became of all of them."""

    __slots__ = ("name", "records", "requests", "usage")

    def __init__(self, name: str, usage: Usage, requests: int, records: EncodedRecords) -> None:
        self.name = name
        """Of the topic."""
        self.usage = usage
        self.requests = requests
        self.records = records
        records.writers = requests

    # -- by the turn

    def end(self) -> None:
        self.usage.in_flight -= self.requests

    def answered(self, write: Pending[Appended]) -> None:
        """What the log said of the write that is this group."""
        assert isinstance(write, Write)
        self.end()
        if write.error is None:
            self.written(write, write.first_seq)
        elif isinstance(write.error, OverloadedError) and self.requests > 1:
            self.alone()  # there may be room for some
        else:
            self.failed(write.error)

    # -- what its requests are told

    def written(self, write: Write, first_seq: int) -> None:
        """Its records are in the log, the first with this seq."""
        raise NotImplementedError

    def alone(self) -> None:
        """Nothing of it was written; each request has to ask by itself."""
        raise NotImplementedError

    def failed(self, error: HeadwaterError) -> None:
        """The log says so. What is on disk is for the error to say: nothing is tried again."""
        raise NotImplementedError

    def broken(self, error: Exception) -> None:
        """A mistake of ours."""
        raise NotImplementedError


class JoinedGroups(WriteGroup):
    """Groups that bring records to the same topic in the same turn."""

    __slots__ = ("groups",)

    def __init__(self, first: WriteGroup) -> None:
        records = EncodedRecords([], [], [], [], keys=first.records.keys)
        super().__init__(first.name, first.usage, 0, records)
        self.groups: list[WriteGroup] = []
        self.add(first)

    def add(self, group: WriteGroup) -> None:
        records, more = self.records, group.records
        records.nodes += more.nodes
        records.tags += more.tags
        records.datas += more.datas
        records.flags += more.flags
        records.size += more.size
        self.requests += group.requests
        records.writers = self.requests
        self.groups.append(group)

    def end(self) -> None:
        for group in self.groups:
            group.end()

    def written(self, write: Write, first_seq: int) -> None:
        seqs = accumulate((len(group.records) for group in self.groups), initial=first_seq)
        call_all(
            partial(group.written, write, seq)
            for group, seq in zip(self.groups, seqs, strict=False)
        )

    def alone(self) -> None:
        call_all(group.alone for group in self.groups)

    def failed(self, error: HeadwaterError) -> None:
        call_all(partial(group.failed, error) for group in self.groups)

    def broken(self, error: Exception) -> None:
        call_all(partial(group.broken, error) for group in self.groups)


class TurnWriter:
    """Of one engine."""

    def __init__(self, backend: Backend, loop: asyncio.AbstractEventLoop) -> None:
        self._backend = backend
        self._loop = loop
        self.engine: Engine | None = None
        """None until there is one to write to."""
        self.senders: list[Callable[[], None]] = []
        """Called when the groups of one answer of the log were told: answers go out together."""

    def takes(self, name: str) -> bool:
        """Whether writes to this topic can go together."""
        engine = self.engine
        topic = None if engine is None else engine.find(name)
        return topic is not None and _takes_groups(topic)

    def at_end_of_turn(self, work: Callable[[], None]) -> None:
        """Run this when all that comes together is there."""
        if self.engine is None:
            self._loop.call_soon(work)
        else:
            self.engine.core.owner.at_end_of_turn(work)

    def submit(self, groups: Sequence[WriteGroup]) -> None:
        """Write all that can be written together, and tell the others to ask one by one."""
        find = self._find
        alone: list[WriteGroup] = []
        by_topic: dict[Topic, WriteGroup] = {}
        for group in groups:
            topic = find(group.name)
            if (
                topic is None
                or not _takes_groups(topic)
                or not group.usage.begin_if_room(group.requests)
            ):
                alone.append(group)
                continue
            before = by_topic.get(topic)
            if before is None:
                by_topic[topic] = group
            elif group.records.keys is None:
                if not isinstance(before, JoinedGroups):
                    before = by_topic[topic] = JoinedGroups(before)
                before.add(group)
            else:  # its keys may be among those of the other group
                group.end()
                alone.append(group)
        if by_topic:
            self._append(by_topic, alone)
        for group in alone:
            group.alone()
        self.send_answers()

    @property
    def _find(self) -> Callable[[str], Topic | None]:
        if self.engine is None or self._backend.draining:
            return _find_nothing
        return self.engine.core.registry.find

    def send_answers(self) -> None:
        call_all(self.senders)

    def _append(self, by_topic: dict[Topic, WriteGroup], alone: list[WriteGroup]) -> None:
        assert self.engine is not None
        try:
            started = self.engine.append_turn({t: group.records for t, group in by_topic.items()})
        except Exception as error:  # a mistake of ours: every request gets an answer (I15)
            for group in by_topic.values():
                group.end()
                group.broken(error)
            return
        for group, write in zip(by_topic.values(), started, strict=True):
            if isinstance(write, HeadwaterError):
                group.end()
                alone.append(group)
            elif write.done:
                group.answered(write)
            else:
                write.on_done = group.answered


def _takes_groups(topic: Topic) -> bool:
    """One that is there for good, and does not check each write for room."""
    return topic.loaded and topic.creation is None and topic.log.settings.discard is not _REJECT


def _find_nothing(_name: str) -> None:
    """While there is no engine, or it takes nothing new."""


def call_all(calls: Iterable[Callable[[], None]]) -> None:
    """Those behind one that raises, too (I15)."""
    mistakes: list[Exception] = []
    for call in calls:
        try:
            call()
        except Exception as mistake:
            mistakes.append(mistake)
    if mistakes:
        raise mistakes[0]
