"""What endpoints and operations need of an object that has topics: an engine has all of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from headwater.core.results import TopicState
from headwater.engine.pending import Change, Pending
from headwater.engine.state.engine_core import EngineCore
from headwater.engine.state.topic import Router, Topic
from headwater.engine.topics.lifecycle import Topics
from headwater.engine.topics.loader import Loaded
from headwater.engine.topics.reader import Reader, ReadPlan
from headwater.engine.topics.record_encoding import EncodedRecords
from headwater.engine.topics.write import Write
from headwater.model.match import TagMatcher
from headwater.store.checked_reads import RecordDamage


class TopicList(Protocol):
    def list(self, prefix: str, after: str | None) -> Iterator[Topic]: ...


class ReadSide(Protocol):
    """What reading needs: an engine has it, and so have a view of another process's files and the
    partitions of an organisation's Kafka topics."""

    @property
    def core(self) -> EngineCore: ...

    @property
    def topics(self) -> TopicList: ...

    @property
    def reader(self) -> Reader: ...

    def topic(self, name: str) -> Topic: ...

    def load(self, topic: Topic) -> Loaded: ...

    def state(self, topic: Topic) -> TopicState: ...

    def plan(self, topic: Topic, from_seq: int, limit: int, bytes_max: int) -> ReadPlan: ...

    def note_damage(self, plan: ReadPlan, findings: Sequence[RecordDamage]) -> bool:
        """Whether to plan again: the topic may know the damage by then."""


class OutboundRoutes(Protocol):
    """What those who empty or drop a topic need of the routers that copy from it."""

    def flush_copies(self, dest: Topic) -> Pending[Any]: ...

    def halt(self, source: Topic) -> Sequence[Router]: ...

    def go_on(self, routers: Sequence[Router]) -> None: ...


class TopicSpace(ReadSide, Protocol):
    """Topics that can be written to and emptied: an engine's, or the partitions of an organisation.

    Endpoints find which of them a name means, and then do the same for both."""

    @property
    def routers(self) -> OutboundRoutes: ...

    def find(self, name: str) -> Topic | None: ...

    def append(
        self,
        name: str,
        records: EncodedRecords,
        *,
        idempotency_key: str | None = None,
        expect_head_seq: int | None = None,
        create: bool | None = None,
        settings: Mapping[str, Any] | None = None,
        disable_backpressure: bool = False,
    ) -> Write: ...

    def delete(
        self, topic: Topic, before_seq: int | None, matcher: TagMatcher | None
    ) -> Pending[Any]: ...


class TopicEngine(TopicSpace, Protocol):
    """Topics of an engine's own: they can be made, changed, dropped and claimed from."""

    @property
    def topics(self) -> Topics: ...

    def create(self, name: str, settings: Mapping[str, Any]) -> Change: ...

    def drop(self, topic: Topic, *, if_empty: bool = False) -> Change: ...
