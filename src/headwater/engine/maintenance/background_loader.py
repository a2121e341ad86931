"""Topics that are loaded though no call needs them, because maintenance has work in them.

A start leaves a topic that was idle unread until a call needs it. Two kinds cannot wait for that:
those whose records expire, and those that keep more in the hot tier than may stay there, when a
cold tier was given to them since. One a round is enough: no caller waits for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from headwater.core.errors import HeadwaterError
from headwater.engine.state.engine_core import EngineCore
from headwater.engine.state.topic import Topic
from headwater.engine.topics.loader import install, load_once
from headwater.store.reclaim import may_relocate
from headwater.store.topic_directory import TopicDirectory

CHECKS_PER_ROUND: Final = 256
"""How many directories are listed in a round: bounds how long the round takes."""


class BackgroundLoader:
    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self._unchecked: Iterator[Topic] = iter(())
        self._failed: dict[int, Exception] = {}
        """Topics that could not be read, by id; the one that was tried last stands last."""

    def begin(self) -> None:
        """After a start: any topic may have more in the hot tier than the settings now say."""
        core = self._core
        if core.cold is not None:
            self._unchecked = iter([topic for topic in core.registry if not topic.loaded])

    def load_one(self) -> Exception | None:
        """Gives what is wrong with a topic that cannot be read, for the end of the round: it must
        not keep maintenance from the others (I6)."""
        call = self._core.owner.call
        topic = call(self._expiring) or self._moving() or call(self._failed_before)
        if topic is not None:
            self._failed.pop(topic.topic_id, None)
            try:
                loaded = load_once(self._core, topic)
                call(lambda: install(topic, loaded, self._core))
            except (OSError, HeadwaterError) as error:
                self._failed[topic.topic_id] = error
        return next(iter(self._failed.values()), None)

    def _expiring(self) -> Topic | None:
        for topic in self._core.expiring.values():
            if not topic.loaded and topic.topic_id not in self._failed:
                return topic
        return None

    def _moving(self) -> Topic | None:
        core = self._core
        for topic in islice(self._unchecked, CHECKS_PER_ROUND):
            if topic.loaded or topic.dropped or topic.broken is not None:
                continue
            directory = TopicDirectory(core.disk, topic.files.directory)
            try:
                directory.scan()
                moves = may_relocate(directory.hot_bytes(), core.settings.segments)
            except OSError:
                moves = True  # reading it will show what is wrong
            if moves:
                return topic
        return None

    def _failed_before(self) -> Topic | None:
        for topic_id in list(self._failed):
            topic = self._core.registry.by_id(topic_id)
            if topic is not None and not topic.loaded:
                return topic
            del self._failed[topic_id]
        return None
