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
    window.observe(1, 0)
    assert window.wait_us(1) == 0


@pytest.mark.claims(169, 170, 187)
def test_the_window_opens_at_half_a_millisecond_and_widens_to_ten() -> None:
    settings = WalSettings()
    assert (settings.commit_window_us_min, settings.commit_window_us_max) == (500, 10_000)
    window = CommitWindow(settings.commit_window_us_min, settings.commit_window_us_max)
    window.observe(8, 0)
    widths = []
    for pressure in (-1.0, 0.0, 0.5, 1.0, 7.0):
        window.set_pressure(pressure)
        widths.append(window.wait_us(3))
    assert widths == [500, 500, 5_250, 10_000, 10_000]


def test_a_group_that_is_all_here_goes_at_once_and_a_failed_prediction_is_dropped() -> None:
    window = CommitWindow(500, 10_000)
    window.observe(8, 0)
    assert window.wait_us(7) == 500
    assert window.wait_us(8) == 0
    window.observe(1, 0)
    assert window.wait_us(1) == 0


def window_of(
    expected: int, sync_us: int, return_us: int, *, overlaps: bool = True
) -> CommitWindow:
    """One that saw a sync of so long, and writers who took so long to come back, each."""
    window = CommitWindow(500, 10_000, overlaps=overlaps)
    window.observe(expected, sync_us)
    window.returns.answered(expected, 0, 0)
    window.returns.returned(expected * return_us)
    return window


@pytest.mark.parametrize(
    ("missing", "sync_us", "return_us", "wait_us"),
    [
        (64, 100, 12, 0),  # a quick disk: the next group comes together during the sync
        (8, 100, 12, 500),  # nearly all are here
        (64, 5_000, 12, 5_000),  # a slow disk: one sync for all, and no longer wait than it takes
        (500, 5_000, 12, 0),
        (64, 50_000, 12, 10_000),
        (1, 100, 101, 0),
        (1, 100, 100, 500),
    ],
)
def test_a_group_waits_when_the_missing_are_here_before_a_sync_would_be_through(
    missing: int, sync_us: int, return_us: int, wait_us: int
) -> None:
    window = window_of(missing + 1, sync_us, return_us)
    assert window.wait_us(1) == window.relaxed_us(1) == wait_us
    assert window.wait_us(missing + 1) == 0


@pytest.mark.parametrize(
    ("missing", "sync_us", "return_us", "wait_us"),
    [(64, 100, 12, 1_536), (8, 100, 12, 500), (64, 5_000, 12, 5_000), (500, 5_000, 12, 10_000)],
)
def test_a_thread_that_takes_the_interpreter_always_waits_for_those_who_are_missing(
    missing: int, sync_us: int, return_us: int, wait_us: int
) -> None:
    window = window_of(missing + 1, sync_us, return_us, overlaps=False)
    assert window.wait_us(1) == wait_us


def test_pressure_makes_a_group_wait_also_where_it_would_not_pay() -> None:
    window = window_of(64, 100, 12)
    window.set_pressure(0.5)
    assert (window.wait_us(1), window.relaxed_us(1)) == (5_000, 0)


def test_one_slow_sync_among_quick_ones_does_not_decide() -> None:
    window = window_of(64, 100, 12)
    window.observe(64, 2_000)
    assert window.relaxed_us(1) == 0
    for _ in range(4):
        window.observe(64, 2_000)
    assert window.relaxed_us(1) > 1_000


def test_one_group_at_a_time_is_followed_until_as_many_are_back() -> None:
    window = CommitWindow(500, 10_000)
    window.returns.answered(10, 100, 1_000)
    window.returns.answered(20, 103, 1_500)
    assert window.returns.due == 110
    window.returns.returned(1_200)
    assert (window.returns.return_us, window.returns.due) == (20.0, 0)
