"""Windows of claims that end when a test says so, not when a busy machine got round to it."""

from __future__ import annotations

from headwater.engine.state.topic import Topic


def end_window(topic: Topic) -> None:
    """Let the time of a queue's window be over: whoever waits in it is served together, now.

    Call it where the engine runs.
    """
    assert topic.queue is not None
    assert topic.queue.window.closes_us is not None, "nobody waits in a window"
    topic.queue.window.closes_us = 0
    topic.wake()
