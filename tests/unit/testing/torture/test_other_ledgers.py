"""The torture program's oracles of queues, machines, Kafka and routers: what they must see."""

from __future__ import annotations

from functools import partial

from headwater.testing.torture.kafka_ledger import KafkaLedger, Message, PartitionReading
from headwater.testing.torture.machine_ledger import (
    InstanceCondition,
    LedgerInstance,
    MachineLedger,
)
from headwater.testing.torture.outcome import RunOutcome
from headwater.testing.torture.queues import Lease, QueueLedger
from headwater.testing.torture.routers import copy_findings
from headwater.testing.torture.topic_ledger import (
    LedgerWrite,
    Stored,
    TopicLedger,
    TopicReading,
    record_data,
)

# -- queues


def queue(*, is_fifo: bool = False, max_deliveries: int = 0) -> QueueLedger:
    """Jobs 1 to 3, all of tag a, all acked."""
    ledger = QueueLedger(TopicLedger("q"), max_deliveries, is_fifo=is_fifo)
    ledger.topic.send(LedgerWrite("j", ("a", "a", "a"), "w", 1, 0.0))
    ledger.topic.ack("j", 1, 3, 0.5)
    return ledger


def job(seq: int) -> Stored:
    return Stored(seq, record_data("j", seq - 1), "a")


def lease(seq: int, number: int, sent_at: float, seconds: float = 10.0, times: int = 1) -> Lease:
    return Lease(seq, f"n{number}", number, times, sent_at, sent_at + 0.1, seconds, "a")


def test_a_job_is_claimed_settled_and_gone_without_a_word() -> None:
    ledger = queue()
    held = lease(1, 1, 1.0)
    ledger.claimed(held, job(1))
    ledger.release(held)
    ledger.topic.remove(1, RunOutcome.PENDING, 2.0)
    ledger.resolve_ack(held, is_skipped=False, at=2.1)
    assert ledger.findings() == []
    assert ledger.topic.check(TopicReading([job(2), job(3)], [], 3, 2)) == []


def test_an_acked_job_that_comes_back_is_seen() -> None:
    ledger = queue()
    ledger.topic.remove(1, RunOutcome.ACKED, 2.0)
    ledger.claimed(lease(1, 2, 3.0), job(1))
    assert ledger.findings() == ["I8: job 1 was acked, and delivered again to n2"]
    found = ledger.topic.check(TopicReading([job(1), job(2), job(3)], [], 3, 1))
    assert found == ["I8: ('j', 0) at 1 was deleted and is there"]


def test_a_job_that_was_not_acked_and_is_gone_is_seen() -> None:
    (found,) = queue().topic.check(TopicReading([job(1), job(3)], [], 3, 1))
    assert found.startswith("I1: j was acked at 2 (fsync); after kill there is nothing")


def test_a_job_with_two_workers_at_once_is_seen() -> None:
    ledger = queue()
    ledger.claimed(lease(1, 1, 1.0), job(1))
    ledger.claimed(lease(1, 2, 2.0), job(1))
    (found,) = ledger.findings()
    assert found.startswith("lease: job 1 is with two workers")


def test_a_pushed_job_is_with_one_worker_until_the_server_leaves() -> None:
    for is_leaving in (False, True):
        ledger = queue()
        ledger.is_server_leaving = partial(bool, is_leaving)
        pushed = lease(1, 1, 1.0)
        pushed.is_pushed = True
        ledger.claimed(pushed, job(1))
        ledger.claimed(lease(1, 2, 2.0), job(1))
        assert len(ledger.findings()) == (0 if is_leaving else 1)


def test_a_job_whose_lease_ran_out_may_go_to_another_worker() -> None:
    ledger = queue()
    ledger.claimed(lease(1, 1, 1.0, seconds=0.5), job(1))
    ledger.claimed(lease(1, 2, 2.0), job(1))
    assert ledger.findings() == []


def test_a_lease_number_that_does_not_grow_is_seen() -> None:
    ledger = queue()
    ledger.claimed(lease(1, 7, 1.0, seconds=0.5), job(1))
    ledger.claimed(lease(1, 7, 2.0), job(1))
    assert ledger.findings() == ["lease: job 1 has number 7, it had 7"]


def test_a_job_delivered_too_often_is_seen() -> None:
    ledger = queue(max_deliveries=3)
    ledger.claimed(lease(1, 1, 1.0, times=4), job(1))
    assert ledger.findings() == ["lease: job 1 was delivered 4 times"]


def test_an_ack_in_time_that_is_skipped_is_seen() -> None:
    ledger = queue()
    held = lease(1, 1, 1.0)
    ledger.claimed(held, job(1))
    ledger.resolve_ack(held, is_skipped=True, at=2.0)
    (found,) = ledger.findings()
    assert found.startswith("lease: the holder's ack in time was skipped")


def test_a_late_ack_that_is_skipped_takes_nothing_from_one_on_its_way() -> None:
    ledger = queue()
    late, good = lease(1, 1, 1.0, seconds=0.5), lease(1, 2, 2.0)
    for held in (late, good):
        ledger.claimed(held, job(1))
        ledger.topic.remove(1, RunOutcome.PENDING, 3.0)
    ledger.resolve_ack(late, is_skipped=True, at=3.1)
    assert ledger.findings() == []
    assert ledger.topic.check(TopicReading([job(2), job(3)], [], 3, 2)) == []


def test_a_fifo_queue_that_hands_out_the_second_job_first_is_seen() -> None:
    ledger = queue(is_fifo=True)
    ledger.claimed(lease(2, 1, 1.0), job(2))
    assert ledger.findings() == ["fifo: job 2 of tag a came before 1"]


def test_a_fifo_queue_that_hands_out_two_of_a_tag_is_seen() -> None:
    ledger = queue(is_fifo=True)
    ledger.claimed(lease(1, 1, 1.0), job(1))
    ledger.topic.remove(1, RunOutcome.UNKNOWN, 1.5)
    ledger.claimed(lease(2, 2, 2.0), job(2))
    (found,) = ledger.findings()
    assert found.startswith("fifo: two jobs of tag a are out")


# -- machines


def machines() -> tuple[MachineLedger, LedgerInstance]:
    """One instance that is made and moved twice; a third event has no answer."""
    ledger = MachineLedger()
    instance = ledger.add("i")
    for count in range(3):
        ledger.record(instance, InstanceCondition(exists=True, count=count), count + 1.0)
    ledger.doubt(instance, InstanceCondition(exists=True, count=3))
    return ledger, instance


def seen(count: int, state: str | None = None) -> dict[str, dict[str, object]]:
    return {"i": {"state": state or f"s{count % 3}", "ctx": {"n": count}}}


def told(*counts: int) -> list[dict[str, object]]:
    return [{"instance_id": "i", "payload": {"n": count}} for count in counts]


def test_an_instance_is_what_was_answered_or_what_was_not() -> None:
    for count in (2, 3):
        ledger, instance = machines()
        assert ledger.compare(seen(count), 9.0) == []
        assert instance.now == InstanceCondition(exists=True, count=count)
        assert ledger.check_transitions(told(*range(1, count + 1))) == []


def test_an_instance_that_forgot_an_event_is_seen() -> None:
    (found,) = machines()[0].compare(seen(1), 9.0)
    assert found.startswith("I1: i is s1 {'n': 1}; it was InstanceCondition(exists=True, count=2)")


def test_an_instance_that_is_gone_is_seen() -> None:
    (found,) = machines()[0].compare({}, 9.0)
    assert found.startswith("I1: i is not there")


def test_a_state_that_its_context_does_not_explain_is_seen() -> None:
    (found,) = machines()[0].compare(seen(2, "s0"), 9.0)
    assert found.endswith("state and context differ")


def test_transitions_that_are_missing_twice_or_in_disorder_are_seen() -> None:
    for counts, word in (((1,), "missing [2]"), ((1, 2, 2), "twice [2]"), ((2, 1), "not in order")):
        ledger, _ = machines()
        assert ledger.compare(seen(2), 9.0) == []
        (found,) = ledger.check_transitions(told(*counts))
        assert word in found


def test_a_loss_of_power_makes_late_answers_uncertain() -> None:
    ledger, instance = machines()
    ledger.lose_power(2.5)
    assert ledger.compare(seen(1), 9.0) == []
    assert instance.now.count == 1
    ledger, _ = machines()
    ledger.lose_power(2.5)
    assert len(ledger.compare(seen(0), 9.0)) == 1


# -- Kafka

SENT = [Message("p", number) for number in range(4)]


def kafka(*, is_idempotent: bool = True) -> KafkaLedger:
    ledger = KafkaLedger("k", 1, is_idempotent=is_idempotent)
    for offset, message in enumerate(SENT):
        ledger.send(message, 0)
        if offset < 3:
            ledger.ack(message, 0, offset, 1.0)
    ledger.request_commit(0, 2)
    ledger.commit(0, 2, 1.5)
    return ledger


def partition(*numbers: int, low: int = 0) -> dict[int, PartitionReading]:
    messages = {low + at: SENT[number].value for at, number in enumerate(numbers)}
    return {0: PartitionReading(low, low + len(numbers), messages)}


def test_acked_messages_at_their_offsets_are_right_with_and_without_the_last() -> None:
    assert kafka().check(partition(0, 1, 2), {0: 2}, 2.0) == []
    assert kafka().check(partition(0, 1, 2, 3), {0: 2}, 2.0) == []


def test_an_acked_message_that_is_missing_is_seen() -> None:
    (found,) = kafka().check(partition(0, 1), {0: 2}, 2.0)
    assert found.startswith("I1: k/0@2 was acked for")


def test_a_message_that_is_there_twice_is_wrong_of_an_idempotent_producer_only() -> None:
    found = kafka().check(partition(0, 1, 2, 2), {0: 2}, 2.0)
    assert any("is there 2 times" in each for each in found)
    assert kafka(is_idempotent=False).check(partition(0, 1, 2, 2), {0: 2}, 2.0) == []


def test_a_hole_among_offsets_is_seen() -> None:
    reading = partition(0, 1, 2, 3)
    del reading[0].messages[3]
    (found,) = kafka().check(reading, {0: 2}, 2.0)
    assert found == "I6: k/0 has no [3] of 0 to 4"


def test_a_committed_offset_that_goes_back_is_seen() -> None:
    (found,) = kafka().check(partition(0, 1, 2), {0: 1}, 2.0)
    assert found == "commit: k/0 is at 1; answered 2, requested 2"


def test_deleted_messages_that_come_back_are_seen() -> None:
    ledger = kafka()
    ledger.request_delete(0, 1)
    ledger.delete(0, 1, 1.6)
    (found,) = ledger.check(partition(0, 1, 2), {0: 2}, 2.0)
    assert found == "I8: k/0 begins at 0, deleted up to 1 or 1"


def test_what_a_consumer_read_and_is_another_now_is_seen() -> None:
    ledger = kafka()
    ledger.note_read(0, 3, b"p:3")
    (found,) = ledger.check(partition(0, 1, 2), {0: 2}, 2.0)
    assert found == "I1: k/0@3 was read as b'p:3', there is None"


# -- routers


def records(*identities: str) -> list[Stored]:
    return [Stored(at, record_data(each, 0)) for at, each in enumerate(identities, 1)]


def test_copies_are_those_of_the_originals_in_order() -> None:
    originals = records("a", "b", "c")
    assert copy_findings(originals, records("a", "b", "c"), is_exact=True) == []
    assert copy_findings(originals, records("a", "b", "a", "b", "c"), is_exact=False) == []


def test_copies_missing_doubled_foreign_or_in_disorder_are_seen() -> None:
    originals = records("a", "b", "c")
    for copies, word in (
        (("a", "c"), "1 never copied"),
        (("a", "b", "b", "c"), "1 copied twice"),
        (("a", "b", "c", "d"), "1 copies of nothing"),
        (("b", "a", "c"), "another order"),
    ):
        (found,) = copy_findings(originals, records(*copies), is_exact=True)
        assert word in found
    (found,) = copy_findings(originals, records("a", "a", "b"), is_exact=False)
    assert "1 never copied" in found
