"""The governor: three signals, one pressure, and the rungs of the ladder."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.model.pressure import SAMPLE_US, Governor, Rung, RungChange, Signals


def pressed(busy: float, *, full: bool = False) -> Signals:
    return Signals(0, 1, 0, busy, full)


@pytest.mark.claims(340)
def test_a_sample_is_due_every_100_ms() -> None:
    assert SAMPLE_US == 100_000


@pytest.mark.claims(340, 341)
@pytest.mark.parametrize(
    ("signals", "pressure"),
    [
        (Signals(0, 4, 0, 0.0), 0.0),
        (Signals(256, 1, 0, 0.0), 1.0),
        (Signals(256, 4, 0, 0.0), 0.25),
        (Signals(0, 4, 0, 0.7), 0.7),
        (Signals(0, 4, 5_000, 0.0), 0.3),
        (Signals(10**9, 0, 10**9, 9.0), 1.0),
        (Signals(128, 1, 5_000, 0.1), 0.5),
    ],
)
def test_the_worst_of_three_signals_is_the_pressure(signals: Signals, pressure: float) -> None:
    governor = Governor()
    governor.sample(signals)
    assert governor.pressure == pytest.approx(pressure)


@pytest.mark.claims(341)
def test_latency_is_smoothed_towards_5_ms_and_falls_by_itself() -> None:
    governor = Governor()
    seen = []
    for _ in range(20):
        governor.sample(Signals(0, 1, 5_000, 0.0))
        seen.append(governor.pressure)
    assert seen == sorted(seen)
    assert seen[0] == pytest.approx(0.3)
    assert seen[-1] > 0.99
    for _ in range(20):
        governor.sample(Signals(0, 1, 0, 0.0))
    assert governor.pressure < 0.01


@pytest.mark.claims(341)
def test_one_long_pause_is_forgotten_within_a_second() -> None:
    governor = Governor()
    governor.sample(Signals(0, 1, 60_000_000, 0.0))
    assert governor.pressure == 1.0
    for _ in range(9):
        governor.sample(Signals(0, 1, 0, 0.0))
    assert governor.pressure < 0.2


@pytest.mark.claims(340)
def test_samples_that_nobody_took_fade_as_quiet_ones_do() -> None:
    taken, skipped = Governor(), Governor()
    for governor in (taken, skipped):
        governor.sample(Signals(0, 1, 5_000, 0.0))
    for _ in range(4):
        taken.sample(Signals(0, 1, 0, 0.0))
    skipped.skip(4)
    assert skipped.latency_us == pytest.approx(taken.latency_us)


@pytest.mark.claims(341)
@pytest.mark.parametrize(
    ("signals", "name", "pressure"),
    [
        (Signals(0, 1, 0, 0.0, backlog=0.5), "backlog", 0.5),
        (Signals(0, 1, 0, 0.0, stall_us=250_000), "stall", 0.25),
        (Signals(64, 1, 0, 0.0, backlog=0.1), "ready", 0.25),
        (Signals(0, 1, 0, 0.3, stall_us=100_000), "pool", 0.3),
        (Signals(0, 1, 0, 0.0, backlog=7.0), "backlog", 1.0),
    ],
)
def test_the_log_counts_among_those_who_work_and_each_signal_is_shown(
    signals: Signals, name: str, pressure: float
) -> None:
    governor = Governor()
    governor.sample(signals)
    assert governor.pressure == governor.parts[name] == pytest.approx(pressure)
    assert max(governor.parts, key=lambda part: governor.parts[part]) == name


@pytest.mark.claims(342)
def test_above_a_fifth_records_share_frames_for_up_to_20_ms() -> None:
    governor = Governor()
    governor.sample(pressed(0.2))
    assert governor.coalesce_us == 0
    assert governor.sample(pressed(0.21)) == (RungChange(Rung.COALESCE, True, 0.21),)
    assert 0 < governor.coalesce_us < 500
    governor.sample(pressed(0.6))
    assert governor.coalesce_us == 10_000
    governor.sample(pressed(1.0))
    assert governor.coalesce_us == 20_000


@pytest.mark.claims(344)
def test_deferring_needs_sustained_pressure_and_ends_below_three_fifths() -> None:
    governor = Governor()
    story = [0.9, 0.9, 0.7, 0.9, 0.9, 0.9, 0.7, 0.6, 0.59, 0.9]
    states = []
    for busy in story:
        governor.sample(pressed(busy))
        states.append(governor.defers)
    assert states == [False] * 5 + [True] * 3 + [False] * 2


@pytest.mark.claims(345)
def test_a_write_is_refused_at_saturation_with_a_full_channel_only() -> None:
    governor = Governor()
    governor.sample(pressed(1.0))
    assert not governor.refuses()
    governor.sample(pressed(0.9, full=True))
    assert not governor.refuses()
    governor.sample(pressed(0.95, full=True))
    assert governor.refuses()
    assert not governor.refuses(disable_backpressure=True)
    transitions = governor.sample(pressed(1.0))
    assert transitions[-1] == RungChange(Rung.REFUSE, False, 1.0)


@pytest.mark.claims(344, 345, 346)
@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=60))
def test_transitions_tell_every_change_of_rungs_and_pressure_gone_leaves_none(
    story: list[tuple[float, bool]],
) -> None:
    governor = Governor()
    told: set[Rung] = set()
    for busy, full in [*story, (0.0, False)]:
        for transition in governor.sample(pressed(busy, full=full)):
            assert (transition.rung in told) is not transition.entered
            told ^= {transition.rung}
            assert transition.pressure == governor.pressure
        assert told == set(governor.rungs)
    assert not told
