"""Every write is answered exactly once, whatever its neighbours do."""

from __future__ import annotations

import pytest

from headwater.engine.owner import Change
from headwater.wal.ticket import Ticket
from tests.unit.engine.conftest import Open


def test_a_callback_that_breaks_keeps_nobody_behind_it_from_being_answered(opened: Open) -> None:
    from headwater.core.durability import Durability

    db = opened()
    answered: list[str] = []

    def breaks() -> None:
        raise RuntimeError("a bug in somebody's callback")

    tickets = [
        Ticket(b"", 0, Durability.FSYNC, context=Change(breaks)),
        Ticket(b"", 0, Durability.FSYNC, context=Change(lambda: answered.append("behind"))),
    ]
    for ticket in tickets:
        ticket.resolve()
    with pytest.raises(RuntimeError, match="somebody's callback"):
        db.engine._take_effect(tickets)
    assert answered == ["behind"]


def test_settings_of_a_topic_that_is_just_being_made_wait_for_it_to_be_safe(opened: Open) -> None:
    db = opened()
    engine = db.engine
    first, second = engine.core.owner.call(
        lambda: (
            engine.topics.create("new", {"ttl_ms": 5}),
            engine.topics.create("new", {"ttl_ms": 5}),
        )
    )
    assert not second.done or first.done
    assert db.state("new").config["ttl_ms"] == 5
