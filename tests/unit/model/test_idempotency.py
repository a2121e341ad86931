"""Keys of writes that were made lately."""

from __future__ import annotations

import pytest

from headwater.core.errors import InvariantError
from headwater.format.control_frames import IdempotencyEntry
from headwater.model.idempotency import IdempotencyWindow


def test_a_key_stands_for_its_write_until_it_expires() -> None:
    window = IdempotencyWindow()
    window.remember(IdempotencyEntry(b"k", 5, 7, 100, created=True))
    known = window.lookup(b"k", 99)
    assert known is not None
    assert (known.first_seq, known.last_seq, known.created, known.pending) == (5, 7, True, None)
    assert window.lookup(b"k", 100) is None
    assert window.lookup(b"other", 0) is None


def test_a_write_on_its_way_is_found_by_its_twin_even_after_the_window() -> None:
    window = IdempotencyWindow()
    waiting = object()
    window.begin(b"k", 1, 1, created=False, expires_ts=10, waiting=waiting)
    found = window.lookup(b"k", 1_000)
    assert found is not None
    assert found.pending is waiting
    assert window.expire(1_000) == 0
    with pytest.raises(InvariantError):
        window.begin(b"k", 2, 2, created=False, expires_ts=10, waiting=waiting)


def test_a_settled_write_is_remembered_and_an_abandoned_one_is_not() -> None:
    window = IdempotencyWindow()
    window.begin(b"kept", 1, 2, created=False, expires_ts=50, waiting=None)
    window.begin(b"failed", 3, 3, created=False, expires_ts=50, waiting=None)
    window.complete(b"kept")
    window.abandon(b"failed")
    assert window.lookup(b"failed", 0) is None
    known = window.lookup(b"kept", 0)
    assert known is not None
    assert known.last_seq == 2
    assert [entry.key for entry in window.entries()] == [b"kept"]


def test_expired_keys_leave_oldest_first_and_only_they() -> None:
    window = IdempotencyWindow()
    for at in range(10):
        window.remember(IdempotencyEntry(b"k%d" % at, at, at, 100 + at, created=False))
    assert window.expire(104) == 5
    assert [entry.key for entry in window.entries()] == [b"k%d" % at for at in range(5, 10)]
    assert window.expire(104) == 0
    assert len(window) == 5


def test_a_key_that_is_used_again_lives_as_long_as_its_new_write() -> None:
    window = IdempotencyWindow()
    window.remember(IdempotencyEntry(b"again", 1, 1, 10, created=False))
    window.remember(IdempotencyEntry(b"other", 2, 2, 20, created=False))
    window.remember(IdempotencyEntry(b"again", 3, 3, 30, created=False))
    assert window.expire(25) == 1
    known = window.lookup(b"again", 25)
    assert known is not None
    assert known.first_seq == 3
