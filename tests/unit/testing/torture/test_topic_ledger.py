"""The torture program's oracle of a topic: each broken promise is seen, and nothing else is."""

from __future__ import annotations

from dataclasses import replace

from headwater.testing.torture.outcome import End, RunOutcome
from headwater.testing.torture.topic_ledger import (
    Followed,
    LedgerWrite,
    SeenGap,
    Stored,
    TopicLedger,
    TopicReading,
    record_data,
)


def write(identity: str, turn: int, *tags: str | None) -> LedgerWrite:
    return LedgerWrite(identity, tags or (None,), "w", turn, sent_at=float(turn))


def stored(seq: int, identity: str, index: int = 0, tag: str | None = None) -> Stored:
    return Stored(seq, record_data(identity, index), tag)


def ledger_with(**options: int) -> TopicLedger:
    """a at 1, b at 2 and 3, c at 4; d was refused, e has no answer."""
    ledger = TopicLedger("t", **options)  # type: ignore[arg-type]
    ledger.send(write("a", 1))
    ledger.ack("a", 1, 1, 1.5)
    ledger.send(write("b", 2, None, "red"))
    ledger.ack("b", 2, 3, 2.5)
    ledger.send(write("c", 3))
    ledger.ack("c", 4, 4, 3.5)
    ledger.send(write("d", 4))
    ledger.refuse("d")
    ledger.send(write("e", 5, None, None))
    ledger.lose("e")
    return ledger


ACKED = [stored(1, "a"), stored(2, "b"), stored(3, "b", 1, "red"), stored(4, "c")]
UNKNOWN = [stored(5, "e"), stored(6, "e", 1)]


def reading(records: list[Stored], earliest: int = 1, head: int | None = None) -> TopicReading:
    last = records[-1].seq if records else 0
    return TopicReading(records, [], last if head is None else head, earliest, at=10.0)


def wrong(ledger: TopicLedger, records: list[Stored], **more: int) -> list[str]:
    return ledger.check(reading(records, **more))


def test_what_was_acked_with_or_without_the_unknown_is_right() -> None:
    assert wrong(ledger_with(), ACKED) == []
    assert wrong(ledger_with(), [*ACKED, *UNKNOWN]) == []


def test_a_dropped_acked_record_is_seen() -> None:
    (found,) = wrong(ledger_with(), [ACKED[0], *ACKED[2:]])
    assert found.startswith("I1: b was acked at 2 (fsync); after kill there is nothing")


def test_a_doubled_record_is_seen() -> None:
    found = wrong(ledger_with(), [*ACKED, stored(5, "c")])
    assert "I2: ('c', 0) is at 4 and again at 5" in found


def test_records_that_changed_places_are_seen() -> None:
    found = wrong(ledger_with(), [stored(1, "c"), *ACKED[1:3], stored(4, "a")])
    assert any(each.startswith("I1: ('c', 0) was acked at 4 and is at 1") for each in found)
    assert any(each.startswith("I2: ('a', 0) at 4 comes after") for each in found)


def test_a_changed_record_is_seen() -> None:
    found = wrong(ledger_with(), [replace(ACKED[0], tag="blue"), *ACKED[1:]])
    assert found == ["I1: ('a', 0) has tag 'blue', not None"]


def test_a_record_out_of_nowhere_is_seen() -> None:
    (found,) = wrong(ledger_with(), [*ACKED, stored(5, "z")])
    assert "which no client wrote" in found


def test_a_refused_write_that_is_there_is_seen() -> None:
    assert wrong(ledger_with(), [*ACKED, stored(5, "d")]) == [
        "I2: ('d', 0) was refused and is at 5"
    ]


def test_half_an_unknown_write_is_seen() -> None:
    (found,) = wrong(ledger_with(), [*ACKED, UNKNOWN[0]])
    assert found == "I2: e is not whole: [5, None]"


def test_an_unknown_write_that_comes_after_a_start_without_it_is_seen() -> None:
    ledger = ledger_with()
    assert wrong(ledger, ACKED) == []
    assert any("is now" in each for each in wrong(ledger, [*ACKED, *UNKNOWN]))


def test_an_unknown_write_that_was_there_must_stay() -> None:
    ledger = ledger_with()
    assert wrong(ledger, [*ACKED, *UNKNOWN]) == []
    found = wrong(ledger, ACKED, head=6)
    assert any(each.startswith("I1: e was acked at 5") for each in found)


def test_a_head_that_goes_back_is_seen() -> None:
    ledger = ledger_with()
    ledger.note_head(9)
    assert "I3: the head is 4, it was 9" in wrong(ledger, ACKED)


def test_one_seq_for_two_records_is_seen() -> None:
    ledger = ledger_with()
    ledger.send(write("f", 6))
    ledger.ack("f", 4, 4, 6.5)
    assert "I3: seq 4 acked for c and for f" in wrong(ledger, ACKED)


def test_a_deleted_record_that_is_there_is_seen() -> None:
    ledger = ledger_with()
    ledger.resolve_delete(ledger.send_delete(None, "red", 4.0), RunOutcome.ACKED, 4.5)
    assert wrong(ledger, ACKED) == ["I8: ('b', 1) at 3 was deleted and is there"]


def test_a_deleted_record_that_comes_back_is_seen() -> None:
    ledger = ledger_with()
    ledger.resolve_delete(ledger.send_delete(3, None, 4.0), RunOutcome.UNKNOWN, 4.5)
    assert wrong(ledger, ACKED[2:], earliest=3) == []
    found = wrong(ledger, ACKED, earliest=3)
    assert "I8: seq 1 ('a', 0) came back" in found


def test_a_gap_that_no_limit_explains_is_seen() -> None:
    ledger = ledger_with()
    found = ledger.check(TopicReading(ACKED, [SeenGap(1, 2, "cap")], 4, 1))
    assert any("in a topic without limits" in each for each in found)


def test_a_cap_that_takes_too_much_is_seen() -> None:
    assert wrong(ledger_with(cap_records=2), ACKED[2:], earliest=3) == []
    found = wrong(ledger_with(cap_records=3), ACKED[2:], earliest=3)
    assert found == ["I9: earliest is 3, the cap allows 2"]


def test_a_tombstone_that_says_too_little_is_seen() -> None:
    ledger = ledger_with(cap_records=2)
    found = ledger.check(TopicReading(ACKED[2:], [SeenGap(1, 1, "cap")], 4, 3))
    assert any(each.startswith("I9: SeenGap(gap_from=1, gap_to=1") for each in found)


def test_what_a_reader_missed_is_seen() -> None:
    ledger = ledger_with()
    ledger.follow(Followed(0, 4, [ACKED[0], *ACKED[2:]], [], 4.0))
    (found,) = wrong(ledger, ACKED)
    assert found == "I6: a reader went from 0 to 4 without 2, which b has"


def test_what_a_reader_saw_and_a_restart_took_is_seen() -> None:
    ledger = ledger_with()
    ledger.follow(Followed(4, 6, UNKNOWN, [], 4.0))
    found = wrong(ledger, ACKED, head=6)
    assert any("a reader saw ('e', 0) at 5, which is gone now" in each for each in found)


def test_a_loss_of_power_undoes_what_was_answered_after_it() -> None:
    ledger = ledger_with()
    ledger.lose_power(since=3.0, disk_since=0.0)
    assert ledger.check(reading(ACKED[:3]), End.POWER_LOSS) == []
    ledger = ledger_with()
    ledger.lose_power(since=3.0, disk_since=0.0)
    found = ledger.check(reading(ACKED[:2]), End.POWER_LOSS)
    assert found[0].startswith("I1: b was acked at 3 (fsync); after power loss there is nothing")
