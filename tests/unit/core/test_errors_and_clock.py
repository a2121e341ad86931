"""Errors say whose move it is; the clock and its doorbell lose no ring."""

from __future__ import annotations

import threading
from pathlib import PurePosixPath

import pytest

from headwater.core import errors
from headwater.core.clock import Doorbell, SystemClock
from headwater.core.durability import Durability


def every_error() -> list[type[errors.HeadwaterError]]:
    found = [each for each in vars(errors).values() if isinstance(each, type)]
    return [each for each in found if issubclass(each, errors.HeadwaterError)]


def test_every_error_of_ours_has_one_base_and_an_exit_code_that_is_not_zero() -> None:
    assert len(every_error()) > 10
    assert all(0 < each.exit_code < 256 for each in every_error())


def test_a_storage_error_is_one_line_with_file_offset_and_advice() -> None:
    error = errors.DamageError(
        "checksum does not match", path=PurePosixPath("/d/wal"), offset=17, advice="run verify"
    )
    assert str(error) == "checksum does not match in /d/wal at byte 17; run verify"
    assert str(errors.StorageError("broken")) == "broken"
    assert str(errors.StorageError("broken", offset=0)) == "broken at byte 0"


def test_what_may_work_later_says_when() -> None:
    assert errors.OverloadedError("busy", retry_after_ms=50).retry_after_ms == 50
    assert errors.DiskFullError("full").retry_after_ms > 0


@pytest.mark.claims(193)
def test_there_are_four_classes_and_only_fsync_waits_for_a_sync() -> None:
    assert [each.value for each in Durability] == ["ephemeral", "memory", "disk", "fsync"]
    assert [each for each in Durability if each.waits_for_sync] == [Durability.FSYNC]
    assert [each for each in Durability if not each.is_logged] == [Durability.EPHEMERAL]


def test_rings_before_a_wait_count_as_one() -> None:
    doorbell = Doorbell()
    for _ in range(5):
        doorbell.ring()
    assert doorbell.wait(0)
    assert not doorbell.wait(0)


def test_a_ring_ends_a_wait_and_a_deadline_ends_it_too() -> None:
    clock = SystemClock()
    doorbell = Doorbell()
    assert not clock.wait(doorbell, clock.monotonic_us() - 1)
    assert not clock.wait(doorbell, clock.monotonic_us() + 2_000)
    ringer = threading.Thread(target=doorbell.ring)
    ringer.start()
    assert clock.wait(doorbell, None)
    ringer.join(10)


def test_the_monotonic_clock_does_not_go_back_and_the_wall_clock_is_of_this_century() -> None:
    clock = SystemClock()
    times = [clock.monotonic_us() for _ in range(1_000)]
    assert times == sorted(times)
    assert clock.wall_ms() > 1_700_000_000_000
