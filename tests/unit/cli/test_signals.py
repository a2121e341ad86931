"""Signals as a wish to stop."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from headwater.cli.signals import stopped_by_signals

BOTH = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


@pytest.fixture
def seen(number: signal.Signals) -> Iterator[list[str]]:
    """What happened; "before" for a signal that the handler of before got."""
    seen: list[str] = []
    theirs = signal.signal(number, lambda *_: seen.append("before"))
    try:
        yield seen
    finally:
        signal.signal(number, theirs)


@BOTH
def test_each_signal_says_stop_until_the_block_is_over(
    number: signal.Signals, seen: list[str]
) -> None:
    with stopped_by_signals(lambda: seen.append("stop")):
        signal.raise_signal(number)
        signal.raise_signal(number)
    signal.raise_signal(number)
    assert seen == ["stop", "stop", "before"]


@BOTH
def test_once_leaves_the_second_signal_to_what_was_there(
    number: signal.Signals, seen: list[str]
) -> None:
    with stopped_by_signals(lambda: seen.append("stop"), once=True):
        signal.raise_signal(number)
        signal.raise_signal(number)
    signal.raise_signal(number)
    assert seen == ["stop", "before", "before"]
