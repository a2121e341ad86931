"""The invariants of a topic after every step, checked at every slot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy

from headwater.model.slots import DEAD, OVERHEAD

if TYPE_CHECKING:
    from headwater.model.topic import TopicLog


def broken_invariants(log: TopicLog) -> list[str]:
    """The invariants that do not hold, in words. For tests: takes as long as the log is."""
    index = log.index
    slots = index.entries(index.base_seq, index.next_seq - 1)
    alive = slots["flags_check"] & DEAD == 0
    payloads = slots["len"].astype(numpy.int64) - OVERHEAD
    promises = {
        "I10": log.evict_floor <= log.earliest_seq <= log.visible_seq + 1,
        "the head is not behind": log.visible_seq <= log.head_seq,
        "slots end at the horizon": index.next_seq == log.visible_seq + 1,
        "a live record is in front": not len(slots) or bool(alive[0]),
        "count": log.count == int(alive.sum()),
        "bytes": log.bytes == int(payloads[alive].sum()),
        "deleted is gone": log.delete_below <= log.earliest_seq,
    }
    return [promise for promise, kept in promises.items() if not kept]
