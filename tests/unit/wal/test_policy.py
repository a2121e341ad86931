"""The five sync policies and the commit window, as the pure functions they are."""

from __future__ import annotations

import pytest

from headwater.config.wal import WalSettings
from headwater.core.durability import Durability
from headwater.wal.policy import (
    ByClass,
    CommitWindow,
    EveryMs,
    EveryN,
    EveryWrite,
    Never,
    SyncPolicy,
    Unsynced,
)


@pytest.mark.claims(166, 167, 185, 200)
def test_by_class_holds_fsync_acks_and_hardens_the_rest_on_a_timer() -> None:
    policy = ByClass(100_000)
    assert [c.name for c in Durability if policy.holds_ack(c)] == ["FSYNC"]
    assert policy.sync_due(Unsynced(1, 0, 1), 0), "a held ack makes it due at once"
    assert not policy.sync_due(Unsynced(1, 50, 0), 100_049)
    assert policy.sync_due(Unsynced(1, 50, 0), 100_050)
    assert policy.due_at_us(Unsynced(1, 50, 0)) == 100_050


def test_every_write_holds_all_acks_and_always_syncs() -> None:
    policy = EveryWrite()
    assert all(policy.holds_ack(each) for each in Durability)
    assert policy.sync_due(Unsynced(1, 5, 0), 5)
    assert policy.due_at_us(Unsynced(1, 5, 0)) == 5


def test_every_n_syncs_after_so_many_submissions_and_never_by_time() -> None:
    policy = EveryN(3)
    assert not any(policy.holds_ack(each) for each in Durability)
    assert [policy.sync_due(Unsynced(n, 0, 0), 10**9) for n in (1, 2, 3, 4)] == [
        False,
        False,
        True,
        True,
    ]
    assert policy.due_at_us(Unsynced(2, 0, 0)) is None


def test_every_ms_syncs_so_long_after_the_oldest_write() -> None:
    policy = EveryMs(20)
    assert not any(policy.holds_ack(each) for each in Durability)
    assert not policy.sync_due(Unsynced(9, 1_000, 0), 20_999)
    assert policy.sync_due(Unsynced(9, 1_000, 0), 21_000)
    assert policy.due_at_us(Unsynced(9, 1_000, 0)) == 21_000


def test_never_leaves_syncing_to_the_system() -> None:
    policy = Never()
    assert not any(policy.holds_ack(each) for each in Durability)
    assert not policy.sync_due(Unsynced(10**6, 0, 0), 10**12)
    assert policy.due_at_us(Unsynced(10**6, 0, 0)) is None


@pytest.mark.parametrize("policy", [ByClass(7), EveryWrite(), EveryMs(3)])
def test_a_policy_is_due_at_the_time_it_names(policy: SyncPolicy) -> None:
    unsynced = Unsynced(1, 1_000, 0)
    due_at = policy.due_at_us(unsynced)
    assert due_at is not None
    assert policy.sync_due(unsynced, due_at)


@pytest.mark.claims(171)
def test_a_lone_writer_is_never_made_to_wait() -> None:
    window = CommitWindow(500, 10_000)
    assert window.wait_us(1) == 0
    window.observe(1)
    assert window.wait_us(1) == 0


@pytest.mark.claims(169, 170, 187)
def test_the_window_opens_at_half_a_millisecond_and_widens_to_ten() -> None:
    settings = WalSettings()
    assert (settings.commit_window_us_min, settings.commit_window_us_max) == (500, 10_000)
    window = CommitWindow(settings.commit_window_us_min, settings.commit_window_us_max)
    window.observe(8)
    widths = []
    for pressure in (-1.0, 0.0, 0.5, 1.0, 7.0):
        window.set_pressure(pressure)
        widths.append(window.wait_us(3))
    assert widths == [500, 500, 5_250, 10_000, 10_000]


def test_a_group_that_is_all_here_goes_at_once_and_a_failed_prediction_is_dropped() -> None:
    window = CommitWindow(500, 10_000)
    window.observe(8)
    assert window.wait_us(7) == 500
    assert window.wait_us(8) == 0
    window.observe(1)
    assert window.wait_us(1) == 0


def test_a_window_can_grow_with_the_company_it_waits_for() -> None:
    window = CommitWindow(500, 10_000, us_per_writer=50)
    waits = []
    for writers in (1, 2, 64, 1_000):
        window.observe(writers)
        waits.append(window.wait_us(0))
    assert waits == [500, 550, 3_650, 10_000]
    window.observe(64)
    window.set_pressure(1.0)
    assert window.wait_us(3) == 10_000
    assert window.relaxed_us == 3_650
