"""Names and numbers of topics. A name is interned to an id once and the id is never reused."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterator

from headwater.config.topic import check_topic_name
from headwater.core.errors import TopicNotFoundError
from headwater.engine.state.topic import Topic
from headwater.recovery.history.topics import TopicTable


class Registry(TopicTable[Topic]):
    """The table of topics, with their names in order."""

    def __init__(self) -> None:
        super().__init__()
        self._names: list[str] = []
        self._sorted = True

    def get(self, name: str) -> Topic:
        topic = self._by_name.get(name)
        if topic is None:
            check_topic_name(name)
            raise TopicNotFoundError(f"there is no topic {name!r}", detail={"topic": name})
        return topic

    def take_id(self) -> int:
        topic_id = self.next_topic_id
        self.next_topic_id += 1
        return topic_id

    def add(self, topic: Topic) -> None:
        super().add(topic)
        self._names.append(topic.name)
        self._sorted = False

    def remove(self, topic: Topic) -> None:
        super().remove(topic)
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
