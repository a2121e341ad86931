"""What follows when the log of a topic was read to its end: seqs that never get a record."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy
import pytest

from headwater.config.topic import TopicSettings
from headwater.core.durability import Durability
from headwater.model.loss import Loss
from headwater.model.topic import TopicLog
from headwater.recovery.history.contents import (
    LossSink,
    lose_ephemeral,
    may_lose_ephemeral,
    reserved_seqs,
)
from headwater.recovery.topics.replay import entries_in_log


@dataclass(slots=True)
class Said(LossSink):
    log: TopicLog
    calls: list[tuple[Any, ...]] = field(default_factory=list)

    def lose(self, upto_seq: int, *, logged: bool) -> None:
        self.calls.append(("lose", upto_seq, logged))

    def begin_anew(self, log: TopicLog) -> None:
        self.calls.append(("anew", log.visible_seq, log.evict_floor, log.earliest_seq, log.losses))


def topic(durability: Durability, records: int = 0) -> TopicLog:
    log = TopicLog(TopicSettings(durability=durability), 3)
    ones = numpy.ones(records)
    log.load_entries(
        entries_in_log(ones.astype("i8") * 40, ones.astype("u8"), ones.astype("u1") * 0)
    )
    return log


@pytest.mark.parametrize("was_ephemeral", [False, True])
@pytest.mark.parametrize("durability", Durability)
def test_records_are_lost_where_some_may_never_have_been_logged(
    durability: Durability, was_ephemeral: bool
) -> None:
    settings = TopicSettings(durability=durability)
    expected = was_ephemeral or durability is Durability.EPHEMERAL
    assert may_lose_ephemeral(settings, was_ephemeral=was_ephemeral) is expected


@pytest.mark.parametrize(
    ("durability", "records", "stored_head", "calls"),
    [
        (Durability.EPHEMERAL, 5, 9, [("lose", 9, False)]),
        (Durability.FSYNC, 5, 9, [("lose", 9, True)]),
        (Durability.EPHEMERAL, 5, 5, []),
        (Durability.EPHEMERAL, 0, 0, []),
        (Durability.EPHEMERAL, 0, 9, [("anew", 9, 10, 10, Loss.LOST_TAIL)]),
        (Durability.FSYNC, 0, 9, [("anew", 9, 10, 10, Loss.LOST_TAIL)]),
    ],
)
def test_what_was_not_logged_is_lost_up_to_what_the_files_know_of(
    durability: Durability, records: int, stored_head: int, calls: list[tuple[Any, ...]]
) -> None:
    said = Said(topic(durability, records))
    lose_ephemeral(said, stored_head)
    assert said.calls == calls


@pytest.mark.parametrize("durability", Durability)
@pytest.mark.parametrize(("ceiling", "reserved"), [(0, 0), (5, 0), (6, 1), (12, 7)])
def test_only_the_disk_class_goes_on_above_what_was_reserved(
    durability: Durability, ceiling: int, reserved: int
) -> None:
    expected = reserved if durability is Durability.DISK else 0
    assert reserved_seqs(topic(durability, 5), ceiling) == expected
