"""What the torture program must see of dropped topics, and that a seed plans the same run."""

from __future__ import annotations

from headwater.testing.torture.drops import Name
from headwater.testing.torture.outcome import End, RunOutcome
from headwater.testing.torture.plan import plan_life
from headwater.testing.torture.topic_ledger import LedgerWrite, Stored, TopicReading, record_data


def written(name: Name, turn: int, seq: int, at: float) -> None:
    identity = f"d.{name.now.number}.{turn}"
    name.now.ledger.send(LedgerWrite(identity, (None,), "w", turn, at))
    name.now.ledger.ack(identity, seq, seq, at + 0.1)


def dropped_once(outcome: RunOutcome = RunOutcome.ACKED) -> Name:
    """Two records, a drop, and where that was answered a record of the topic made again."""
    name = Name("d")
    written(name, 1, 1, 1.0)
    written(name, 2, 2, 2.0)
    name.generations[-1].dropped, name.generations[-1].dropped_at = outcome, 3.0
    if outcome is RunOutcome.ACKED:
        written(name, 3, 1, 4.0)
    return name


def reading(*identities: str) -> TopicReading:
    records = [Stored(at, record_data(each, 0)) for at, each in enumerate(identities, 1)]
    return TopicReading(records, [], len(records), 1, at=9.0)


def test_a_topic_that_was_made_again_has_its_own_records_only() -> None:
    assert dropped_once().compare(reading("d.2.3"), End.KILL) == []
    found = dropped_once().compare(reading("d.1.1", "d.1.2"), End.KILL)
    assert found == ["I8: d is there, though it was dropped (making 1)"]
    (found_mixed,) = dropped_once().compare(reading("d.1.1", "d.2.3"), End.KILL)
    assert found_mixed.startswith("I8: d has records of topics that were dropped")


def test_a_topic_that_nobody_dropped_is_not_gone() -> None:
    assert dropped_once().compare(None, End.KILL) == ["I1: d is gone, and no client dropped it"]


def test_after_a_drop_without_an_answer_the_topic_is_whole_or_gone() -> None:
    assert dropped_once(RunOutcome.UNKNOWN).compare(None, End.KILL) == []
    assert dropped_once(RunOutcome.UNKNOWN).compare(reading("d.1.1", "d.1.2"), End.KILL) == []
    (found,) = dropped_once(RunOutcome.UNKNOWN).compare(reading("d.1.1"), End.KILL)
    assert found.startswith("I1: d.1.2 was acked at 2")


def test_a_loss_of_power_may_undo_a_drop_that_was_answered_after_it() -> None:
    name = dropped_once()
    name.lose_power(2.9)
    assert name.compare(reading("d.1.1", "d.1.2"), End.POWER_LOSS) == []


def test_the_same_seed_plans_the_same_lives_and_another_one_others() -> None:
    first = [plan_life(5, number, 8, images=True) for number in range(4)]
    assert first == [plan_life(5, number, 8, images=True) for number in range(4)]
    assert first != [plan_life(6, number, 8, images=True) for number in range(4)]
    assert len({life.is_on_image for life in first}) == 2
