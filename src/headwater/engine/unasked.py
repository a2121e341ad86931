"""Topics that are read back though nobody asks for them, because the keeper has work in them.

A start leaves a topic that was idle unread until somebody asks for it. Two kinds cannot wait for
that: those whose records expire, and those that keep more in the hot tier than may stay there,
when a cold tier was given to them since. One a round is enough: nobody waits for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from headwater.engine.core import EngineCore
from headwater.engine.loading import install, load_once
from headwater.engine.topic import Topic
from headwater.store.reclaim import may_relocate
from headwater.store.settling import TopicDirectory

LOOKS_PER_ROUND: Final = 256
"""How many directories are listed in a round: bounds how long the round takes."""


class UnaskedTopics:
    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self._not_looked_at: Iterator[Topic] = iter(())

    def begin(self) -> None:
        """After a start: any topic may have more in the hot tier than the settings now say."""
        core = self._core
        if core.cold is not None:
            self._not_looked_at = iter([topic for topic in core.registry if not topic.loaded])

    def load_one(self) -> None:
        topic = self._core.owner.call(self._expiring) or self._moving()
        if topic is not None:
            loaded = load_once(self._core, topic)
            self._core.owner.call(lambda: install(topic, loaded, self._core))

    def _expiring(self) -> Topic | None:
        expiring = self._core.expiring.values()
        return next((topic for topic in expiring if not topic.loaded), None)

    def _moving(self) -> Topic | None:
        core = self._core
        for topic in islice(self._not_looked_at, LOOKS_PER_ROUND):
            if topic.loaded or topic.dropped or topic.broken is not None:
                continue
            directory = TopicDirectory(core.disk, topic.files.directory)
            directory.look()
            if may_relocate(directory.hot_bytes(), core.settings.segments):
                return topic
        return None
