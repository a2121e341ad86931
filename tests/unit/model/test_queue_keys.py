"""Per-key order: one job of a key at a time, in the order in which they were written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headwater.model.index import SeqIndex
from headwater.model.queue import QueueLeases
from tests.unit.model.queues import LEASE_US, delete, jobs

Keys = Mapping[int, bytes | None]


def claim_by_key(
    queue: QueueLeases, index: SeqIndex, wanted: int, keys: Keys, now_us: int = 0
) -> Sequence[int]:
    queue.sweep(now_us, 0)
    drawn = queue.draw(index, wanted)
    going = [seq for seq in drawn if queue.admit(seq, keys[seq])]
    return queue.grant(going, "one", now_us + LEASE_US).seqs


def done(queue: QueueLeases, index: SeqIndex, seq: int) -> None:
    assert queue.ack("one", [seq], None, 0).taken == [seq]
    delete(index, seq)
    queue.gone([seq])


def test_at_most_one_job_of_a_key_is_in_flight() -> None:
    keys: Keys = {1: b"a", 2: b"a", 3: b"b", 4: None, 5: None, 6: b"a"}
    index, queue = jobs(6), QueueLeases()
    queue.keep_order(True)
    assert claim_by_key(queue, index, 6, keys) == [1, 3, 4, 5]
    assert queue.keys is not None
    assert queue.keys.parked == 2
    assert claim_by_key(queue, index, 6, keys) == []
    done(queue, index, 1)
    assert claim_by_key(queue, index, 6, keys) == [2]
    done(queue, index, 2)
    assert claim_by_key(queue, index, 6, keys) == [6]


def test_a_job_that_comes_back_keeps_its_key_so_that_the_order_stays() -> None:
    keys: Keys = {1: b"a", 2: b"a"}
    index, queue = jobs(2), QueueLeases()
    queue.keep_order(True)
    assert claim_by_key(queue, index, 2, keys) == [1]
    queue.nack("one", [1], None, 0, delay_us=1_000)
    assert claim_by_key(queue, index, 2, keys) == [], "2 does not overtake 1"
    assert claim_by_key(queue, index, 2, keys, now_us=1_000) == [1]


def test_a_key_goes_past_waiting_jobs_that_were_deleted() -> None:
    keys: Keys = dict.fromkeys(range(1, 5), b"a")
    index, queue = jobs(4), QueueLeases()
    queue.keep_order(True)
    claim_by_key(queue, index, 4, keys)
    delete(index, 2, 3)
    queue.forget([2, 3])
    done(queue, index, 1)
    assert claim_by_key(queue, index, 4, keys) == [4]


def test_order_by_key_can_be_given_up_and_taken_up_while_jobs_are_out() -> None:
    keys: Keys = dict.fromkeys(range(1, 5), b"a")
    index, queue = jobs(4), QueueLeases()
    queue.keep_order(True)
    claim_by_key(queue, index, 3, keys)
    queue.keep_order(False)
    assert claim_by_key(queue, index, 2, keys) == [2, 3]
    queue.keep_order(True)
    known_before = queue.keys_known
    assert queue.unkeyed_seqs() == [1, 2, 3]
    queue.learn_keys(keys)
    assert (known_before, queue.keys_known) == (False, True)
    assert claim_by_key(queue, index, 1, keys) == []
    done(queue, index, 2)
    assert claim_by_key(queue, index, 1, keys) == [], "1 has the key"
    done(queue, index, 1)
    assert claim_by_key(queue, index, 1, keys) == [4]
