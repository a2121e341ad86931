"""Making a topic and changing its settings, for threads and for event loops.

A change in the log holds all settings. A change requested while another one is on its way waits for
the result of that one, so two callers that change different settings undo nothing of each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from headwater.core.results import TopicState
from headwater.engine.operation import Answered, AsOwner, Operation, Woken
from headwater.engine.pending import Change
from headwater.engine.state.topic import Topic
from headwater.engine.topics.operations import ensure_loaded
from headwater.engine.topics.protocols import TopicEngine


def create_operation(
    engine: TopicEngine, name: str, settings: Mapping[str, Any]
) -> Operation[TopicState]:
    existing: Topic | None = yield AsOwner(lambda: engine.find(name))
    if existing is not None:
        yield from ensure_loaded(existing)
    create = partial(_create, engine, name, settings)
    outcome: Topic | tuple[TopicState, bool] = yield Answered(create)
    while isinstance(outcome, Topic):
        yield Woken(outcome, None, partial(_may_configure, outcome))
        outcome = yield Answered(create)
    return outcome[0]


def _create(engine: TopicEngine, name: str, settings: Mapping[str, Any]) -> Change:
    """The answer is the topic itself while another caller is changing its settings."""
    topic = engine.find(name)
    if topic is None or _may_configure(topic):
        return engine.create(name, settings)
    change = Change(lambda: topic)
    change.result = topic
    return change


def _may_configure(topic: Topic) -> bool:
    return not topic.configuring
