"""In place of the Kafka store when its log could not be opened: refuses every call with the cause.

Has the methods of the store. Topics of the engine are served through the same port meanwhile, so
nothing here may look like an answer: no partition has an offset, no group has one. The topics are
known where a checkpoint could be read; only Metadata shows them.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import PurePath
from typing import Any, NoReturn

from headwater.core.errors import StorageError
from headwater.disk import Disk
from headwater.engine.kafka.group_state import Committed, OffsetKey
from headwater.engine.kafka.partition import KafkaTopic, PartitionCalls, TopicRegistry
from headwater.engine.owner import Pending
from headwater.engine.state.damage import Part, Parts
from headwater.format.kafka import events
from headwater.recovery.kafka.survey import scan_checkpoints

_PRODUCER_ID_BITS = 62
"""Ids from the log begin at 0 and are given one by one: they never come that far."""


class UnavailableKafka:
    """For the owner, as the store."""

    def __init__(self, disk: Disk, directory: PurePath, parts: Parts) -> None:
        self._parts = parts
        self._known = self._known_topics(disk, directory)

    def error(self) -> StorageError:
        """Why, with file and offset."""
        error = self._parts.error(Part.KAFKA)
        assert error is not None
        return error

    def refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise StorageError(str(self.error()))

    # -- which topics there are

    def _known_topics(self, disk: Disk, directory: PurePath) -> TopicRegistry:
        registry = TopicRegistry()
        try:
            checkpoint = scan_checkpoints(disk, directory).chosen.checkpoint
        except OSError:
            checkpoint = None
        calls = PartitionCalls(*[self.refuse] * len(fields(PartitionCalls)))
        for meta in () if checkpoint is None else checkpoint.topics:
            known = (meta.org, meta.name, meta.topic_id, meta.made_id)
            registry.add(KafkaTopic(calls, *known, len(meta.partitions), meta.configs))
        return registry

    def known(self, org: int) -> Iterable[KafkaTopic]:
        """Those that there were when the last checkpoint was written."""
        return self._known.of(org)

    def known_topic(self, org: int, name: str) -> KafkaTopic | None:
        return self._known.find(org, name)

    def known_by_id(self, org: int, topic_id: bytes) -> KafkaTopic | None:
        topic = self._known.by_id(topic_id)
        return topic if topic is not None and topic.org == org else None

    def is_taken(self, org: int, name: str) -> bool:
        return self._known.find(org, name) is not None

    def topics(self, _org: int) -> Iterable[KafkaTopic]:
        return ()

    def topic(self, _org: int, _name: str) -> KafkaTopic | None:
        return None

    def topic_by_id(self, _org: int, _topic_id: bytes) -> KafkaTopic | None:
        return None

    # -- what it refuses

    check_new_topic = create_topic = refuse
    commit_offsets = forget_group = forget_offsets = log_membership = refuse

    # -- empty, and shown to no client: absence would look like an answer

    def committed(self, _org: int, _group: str) -> Mapping[OffsetKey, Committed]:
        return {}

    def groups_with_offsets(self, _org: int) -> list[str]:
        return []

    def memberships(self) -> tuple[events.GroupMembership, ...]:
        return ()

    def has_membership(self, _org: int, _group: str) -> bool:
        return False

    def fits_membership(self, _event: events.GroupMembership) -> bool:
        return False

    # -- what can be had without the log

    def new_producer_id(self) -> Pending[int]:
        """For producers that write to topics of the engine: an id that no log will ever give."""
        response: Pending[int] = Pending()
        response.succeed(1 << _PRODUCER_ID_BITS | secrets.randbits(_PRODUCER_ID_BITS))
        return response
