"""What a topic and a group of consumers keep at all times, checked after every step of a test."""

from __future__ import annotations

import numpy

from headwater.core.errors import InvariantError
from headwater.model.kafka_group.group import ConsumerGroup
from headwater.model.kafka_group.member import Phase
from headwater.model.slots import DEAD, OVERHEAD
from headwater.model.topic import TopicLog


def check_topic(log: TopicLog) -> None:
    """Raise when an invariant does not hold. Takes as long as the log is."""
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


def check_group(group: ConsumerGroup) -> None:
    """Fails where the list at the top of `group.py` is broken."""
    members = group.members.values()
    preparing = group.phase is Phase.PREPARING_REBALANCE
    completing = group.phase is Phase.COMPLETING_REBALANCE
    if group.members:
        assert group.phase not in (Phase.EMPTY, Phase.DEAD), group.phase
        assert group.leader in group.members, group.leader
    else:
        assert preparing or group.phase in (Phase.EMPTY, Phase.DEAD), group.phase
    assert preparing or all(each.joining is None for each in members)
    assert completing or all(each.syncing is None for each in members)
    held = {each.instance_id: each.member_id for each in members if each.instance_id}
    assert held == group.instances
    assert all(name == each.member_id for name, each in group.members.items())
    assert group.promised.keys().isdisjoint(group.members)
