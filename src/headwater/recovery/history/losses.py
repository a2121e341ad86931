"""What follows when the log of a topic was read to its end: which seqs never get a record.

- Of a class that is not logged, or was not until now: what was given out and is in no file. The
  files say how far that was.
- Of the disk class: what was reserved before a crash. Some of it may have been acknowledged, so the
  topic goes on above all of it (I3).

Both are losses, which readers see as a tombstone (I9). Done twice, nothing more is lost (I4).
"""

from __future__ import annotations

from typing import Protocol

from headwater.config.topic import TopicSettings
from headwater.core.durability import Durability
from headwater.model.loss import Loss
from headwater.model.topic import TopicLog


class LossSink(Protocol):
    """What a reader does about it."""

    __slots__ = ()

    @property
    def log(self) -> TopicLog:
        raise NotImplementedError

    def lose(self, upto_seq: int, *, logged: bool) -> None:
        """The seqs from the head up to this one are lost. `logged`: segments and log say so."""

    def begin_anew(self, log: TopicLog) -> None:
        """No record is left; the topic goes on with this log, which is empty."""


def may_lose_ephemeral(settings: TopicSettings, *, was_ephemeral: bool) -> bool:
    return not settings.durability.is_logged or was_ephemeral


def lose_ephemeral(sink: LossSink, stored_head: int) -> None:
    """What was not logged is gone, up to the last seq that the files know of."""
    log = sink.log
    if stored_head <= log.visible_seq:
        return
    if log.count:
        sink.lose(stored_head, logged=log.settings.durability.is_logged)
        return
    anew = TopicLog(log.settings, log.epoch, stored_head + 1)
    anew.restore_floors(stored_head + 1, stored_head + 1, log.losses | Loss.LOST_TAIL)
    sink.begin_anew(anew)


def reserved_seqs(log: TopicLog, ceiling: int) -> int:
    """How many seqs behind the head may have been acknowledged, up to a ceiling. A clean stop
    leaves none."""
    is_disk = log.settings.durability is Durability.DISK
    return max(ceiling - log.visible_seq, 0) if is_disk else 0
