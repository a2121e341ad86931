"""Jobs kept back: a heap whose old entries say nothing."""

from __future__ import annotations

import pytest

from headwater.model.queue.waiting import Delays


@pytest.mark.claims(387)
def test_those_due_come_in_order_of_time_and_then_of_seq() -> None:
    delays = Delays()
    for seq, ready in ((5, 20), (9, 10), (4, 20), (1, 30)):
        delays.add(seq, ready)
    assert (len(delays), delays.next(), 9 in delays) == (4, 10, True)
    assert list(delays.due(9)) == []
    assert list(delays.due(20)) == [9, 4, 5]
    assert delays.items() == [(1, 30)]


def test_a_job_that_is_put_off_again_is_due_at_its_new_time_only() -> None:
    delays = Delays()
    delays.add(1, 10)
    delays.add(1, 50)
    delays.add(2, 10)
    delays.discard(2)
    assert delays.next() == 50
    assert list(delays.due(49)) == []
    assert list(delays.due(50)) == [1]
    assert delays.next() is None
