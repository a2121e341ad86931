"""The invariants of a topic after every step, checked at every slot."""

from __future__ import annotations

import numpy

from headwater.core.errors import InvariantError
from headwater.model.slots import DEAD, OVERHEAD
from headwater.model.topic import TopicLog


def check_topic(log: TopicLog) -> None:
    """Raise when an invariant does not hold. For tests: takes as long as the log is."""
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
    broken = [promise for promise, kept in promises.items() if not kept]
    if broken:
        raise InvariantError(f"topic: {', '.join(broken)}")
