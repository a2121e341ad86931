"""Names and numbers of topics. A name is interned to an id once and the id is never reused."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterator

from headwater.config.topic import check_topic_name
from headwater.core.errors import TopicNotFoundError
from headwater.engine.topics.topic import Topic


class Registry:
    def __init__(self) -> None:
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[int, Topic] = {}
        self._names: list[str] = []
        self._sorted = True
        self.epochs: dict[str, int] = {}
        """The last epoch of names that are gone."""
        self.next_topic_id = 1

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._by_id.values())

    def find(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def get(self, name: str) -> Topic:
        topic = self._by_name.get(name)
        if topic is None:
            check_topic_name(name)
            raise TopicNotFoundError(f"there is no topic {name!r}", detail={"topic": name})
        return topic

    def by_id(self, topic_id: int) -> Topic | None:
        return self._by_id.get(topic_id)

    def take_id(self) -> int:
        topic_id = self.next_topic_id
        self.next_topic_id += 1
        return topic_id

    def epoch_of(self, name: str) -> int:
        """The newest epoch this name ever had; 0 when it never was a topic."""
        topic = self._by_name.get(name)
        return self.epochs.get(name, 0) if topic is None else topic.log.epoch

    def add(self, topic: Topic) -> None:
        self._by_name[topic.name] = topic
        self._by_id[topic.topic_id] = topic
        self.next_topic_id = max(self.next_topic_id, topic.topic_id + 1)
        self.epochs.pop(topic.name, None)
        self._names.append(topic.name)
        self._sorted = False

    def remove(self, topic: Topic) -> None:
        if self._by_name.get(topic.name) is topic:
            del self._by_name[topic.name]
        self._by_id.pop(topic.topic_id, None)
        self.epochs[topic.name] = topic.log.epoch
        self._names = list(self._by_name)
        self._sorted = False

    def names(self, prefix: str = "", after: str | None = None) -> Iterator[str]:
        """Names in order that begin with `prefix` and come after `after`."""
        if not self._sorted:
            self._names.sort()  # nearly in order already, so nearly free
            self._sorted = True
        at = bisect_left(self._names, max(prefix, after or ""))
        for name in itertools.islice(self._names, at, None):
            if not name.startswith(prefix):
                return
            if after is None or name > after:
                yield name
