"""What operations need of an object that has partitions: an engine has all of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from headwater.core.results import Deleted
from headwater.engine.operation import Operation
from headwater.engine.owner import Pending
from headwater.engine.partition import Partition
from headwater.engine.state.engine_core import EngineCore
from headwater.engine.state.topic import Router, Topic
from headwater.engine.topics.lifecycle import Topics
from headwater.engine.topics.publisher import PendingAppend
from headwater.engine.topics.reader import Reader
from headwater.engine.topics.record_encoding import EncodedRecords
from headwater.model.match import TagMatcher


class ReadSide(Protocol):
    """What reading needs: an engine has it, and so have a view of another process's files and the
    partitions of an organisation's Kafka topics."""

    @property
    def core(self) -> EngineCore: ...

    def topic(self, name: str) -> Partition: ...

    def listed(self, prefix: str, after: str | None) -> Iterator[Partition]:
        """By name, in order."""


class OutboundRoutes(Protocol):
    """What those who empty or drop a topic need of the routers that copy from it."""

    def flush_copies(self, dest: Topic) -> Pending[Any]: ...

    def halt(self, source: Topic) -> Sequence[Router]: ...

    def go_on(self, routers: Sequence[Router]) -> None: ...


class PartitionSpace(ReadSide, Protocol):
    """Partitions that can be written to and emptied, by name: topics of an engine, or partitions
    of an organisation in Kafka's log.

    Endpoints find which of them a name means, and then do the same for both. A write goes by name,
    since it may make the topic."""

    def find(self, name: str) -> Partition | None: ...

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
    ) -> PendingAppend: ...

    def deletion(
        self, name: str, before_seq: int | None, matcher: TagMatcher | None
    ) -> Operation[Deleted]:
        """One of both is given, or both are."""


class TopicEngine(PartitionSpace, Protocol):
    """Topics of an engine's own: they can be made, changed, dropped and claimed from."""

    @property
    def topics(self) -> Topics: ...

    @property
    def routers(self) -> OutboundRoutes: ...

    @property
    def reader(self) -> Reader: ...

    def find(self, name: str) -> Topic | None: ...

    def topic(self, name: str) -> Topic: ...
