"""Whether the source's topics are still those that are copied.

A consumer gets no notice that a topic was deleted: it only gets nothing more. And when a topic of
the same name is made, it gets that one's records, from the old one's offset on.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from headwater.client.bridge.statement import BridgeStoppedError, Statement
from headwater.core.errors import InvalidRequestError

if TYPE_CHECKING:
    from headwater.client.bridge.clusters import ClusterReader
    from headwater.client.bridge.settings import BridgeSettings, Cluster

CHECK_TIMEOUT_S: Final = 2.0
MISSES_MAX: Final = 2
"""A topic is gone when the source answered so many times in a row without it."""
RANDOM: Final = 4
"""The version of a random UUID, which no other topic has."""
_CLUSTER_ID_OF_HEADWATER: Final = "headwater"
"""Every Headwater says that it is this cluster."""


class TopicChangedError(BridgeStoppedError):
    """A topic of the source is gone, or is another one by now."""


class SourceTopics:
    def __init__(self, source: ClusterReader, cluster: Cluster, topics: Sequence[str]) -> None:
        self._source = source
        self._cluster = cluster
        self._topics = topics
        self._ids: dict[str, str | None] = {}
        self._active: set[str] = set()
        """Topics that something came from since the source was last asked for all of them."""
        self._missed: dict[str, int] = {}
        """How many times in a row the source did not name a topic."""

    def begin(self, statement: Statement | None) -> None:
        """Takes the topics as they are, if they are those that were copied before."""
        self._ids = self._source.topic_ids(self._topics)
        for topic, said in ({} if statement is None else statement.ids).items():
            self._compare(topic, said, self._ids.get(topic))

    def known(self) -> dict[str, str]:
        """Old clusters have no ids of topics."""
        return {topic: each for topic, each in self._ids.items() if each is not None}

    def confirm(self, topics: Iterable[str]) -> None:
        """After records were read, and before they are copied: they are of the same topics.

        What was read of a topic that is gone by now is of that topic.
        """
        ours = set(topics) & set(self._topics)
        self._active |= ours
        for topic, found in (self._source.topic_ids(ours, CHECK_TIMEOUT_S) if ours else {}).items():
            self._compare(topic, self._ids.get(topic), found)

    def check(self) -> None:
        """Now and then, for topics that nothing comes from."""
        quiet = [topic for topic in self._topics if topic not in self._active]
        self._active.clear()
        there = self._source.topic_ids(quiet, CHECK_TIMEOUT_S) if quiet else {}
        for topic, found in there.items():
            self._compare(topic, self._ids.get(topic), found)
        self._missed = {
            topic: self._missed.get(topic, 0) + 1 for topic in quiet if topic not in there
        }
        gone = [topic for topic, times in self._missed.items() if times >= MISSES_MAX]
        if gone:
            raise TopicChangedError(
                f"{self._cluster} has no topic {gone[0]!r} any more; what was read of it is "
                "copied. Run it again without that topic, and the others go on"
            )

    def _compare(self, topic: str, before: str | None, now: str | None) -> None:
        if before is not None and now is not None and before != now:
            raise TopicChangedError(
                f"{self._cluster}: topic {topic!r} was made anew, or is of another cluster than "
                "the one that was copied. Under another --name it is copied behind what is there; "
                "run it again without that topic, and the others go on"
            )


def refuse_one_cluster(
    settings: BridgeSettings, source: ClusterReader, dest: ClusterReader, topics: Iterable[str]
) -> None:
    """A topic that is copied into itself never ends."""
    names = list(topics)
    from_ids, to_ids = source.topic_ids(names), dest.topic_ids(names)
    shared = [
        topic for topic in from_ids.keys() & to_ids.keys() if _is_one(from_ids, to_ids, topic)
    ]
    nameless = [topic for topic in from_ids.keys() & to_ids.keys() if from_ids[topic] is None]
    if nameless and not shared:
        cluster_id = source.cluster_id()
        if cluster_id not in (None, _CLUSTER_ID_OF_HEADWATER) and cluster_id == dest.cluster_id():
            shared = nameless
    if shared:
        raise InvalidRequestError(
            f"{settings.source} and {settings.dest} have one topic {shared[0]!r} with one id: they "
            "are the same cluster, or one was restored from a backup of the other. A topic cannot "
            "be copied into itself"
        )


def _is_one(one: dict[str, str | None], other: dict[str, str | None], topic: str) -> bool:
    found = one[topic]
    return found is not None and found == other[topic] and _is_random(found)


def _is_random(topic_id: str) -> bool:
    """Ids of Headwater's log topics are numbers, and say nothing about the cluster."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(topic_id + "==")).version == RANDOM
