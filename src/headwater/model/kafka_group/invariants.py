"""What a group keeps at all times, as assertions for tests."""

from __future__ import annotations

from headwater.model.kafka_group.group import ConsumerGroup
from headwater.model.kafka_group.outcomes import Phase


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
