"""What callers can do with routers, written once for threads and for event loops."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, Protocol

from headwater.core.errors import InvalidRequestError, OverloadedError
from headwater.core.limits import READ_WAIT_MS_CLAMP
from headwater.core.results import RouterState
from headwater.core.units import US_PER_MS
from headwater.engine.operation import Answered, AsOwner, Operation, Woken
from headwater.engine.routers.definitions import Routers
from headwater.engine.state.topic import Router, Topic
from headwater.engine.topics.operations import create_operation, ensure_loaded
from headwater.engine.topics.protocols import TopicEngine
from headwater.model.router import router_settings

POLL_EVERY_US: Final = 5 * US_PER_MS


class RouterEngine(TopicEngine, Protocol):
    """What operations on routers need of an engine."""

    @property
    def routers(self) -> Routers: ...


def put_router_operation(
    engine: RouterEngine, name: str, settings: Mapping[str, Any]
) -> Operation[tuple[RouterState, bool]]:
    """Define a router. Gives its state, and whether it was made by this. A source that is not
    there is made, unless `create_source` says no."""
    given = dict(settings)
    create_source = given.pop("create_source", True)
    wanted = router_settings(given)
    if wanted.source == wanted.dest:
        raise InvalidRequestError(
            f"a router copies from one topic to another, not from {wanted.source!r} to itself",
            detail={"setting": "dest"},
        )
    yield AsOwner(lambda: engine.routers.check(name, wanted))
    source: Topic | None = yield AsOwner(lambda: engine.find(wanted.source))
    if source is None and create_source:
        yield from create_operation(engine, wanted.source, {})
    dest: Topic | None = yield AsOwner(lambda: engine.find(wanted.dest))
    if dest is not None:
        yield from ensure_loaded(dest)
    outcome: tuple[RouterState, bool] = yield Answered(lambda: engine.routers.put(name, wanted))
    return outcome


def caught_up_operation(engine: RouterEngine, topic: Topic) -> Operation[None]:
    """Wait until everything that is visible now has come to this topic through its routers, over
    other topics too. OverloadedError when that takes too long."""
    clock = engine.core.clock
    until_us = clock.monotonic_us() + READ_WAIT_MS_CLAMP * US_PER_MS
    routers: list[Router] = yield AsOwner(lambda: _into(topic, set()))
    for router in routers:
        # By now its source has all that the routers before it were waited for.
        seq: int = yield AsOwner(partial(_visible, router.source))

        def has_come(router: Router = router, seq: int = seq) -> bool:
            gone = router.stopped or router.dest.dropped or router.source.dropped
            return gone or router.cursor.source_seq >= seq

        while not (yield AsOwner(has_come)):
            now_us = clock.monotonic_us()
            if now_us >= until_us:
                raise OverloadedError(
                    f"router {router.name!r} is {router.lag} records behind; try again, or read "
                    "without consistency strong",
                    detail={"router": router.name, "lag": router.lag},
                )
            # Records that its filter leaves out wake no waiter.
            yield Woken(router.dest, min(now_us + POLL_EVERY_US, until_us), has_come)


def _visible(topic: Topic) -> int:
    return topic.log.visible_seq


def _into(topic: Topic, seen: set[int]) -> list[Router]:
    """The routers into a topic, also over others, the farthest first."""
    if topic.inbound is None or topic.topic_id in seen:
        return []
    seen.add(topic.topic_id)
    outcome: list[Router] = []
    for router in topic.inbound.routers:
        outcome += [*_into(router.source, seen), router]
    return outcome


def router_operation(engine: RouterEngine, name: str) -> Operation[RouterState]:
    state: RouterState = yield AsOwner(lambda: engine.routers.state(engine.routers.get(name)))
    return state


def routers_operation(
    engine: RouterEngine, prefix: str, source: str | None, dest: str | None
) -> Operation[list[RouterState]]:
    states: list[RouterState] = yield AsOwner(
        lambda: [
            engine.routers.state(router) for router in engine.routers.list(prefix, source, dest)
        ]
    )
    return states


def delete_router_operation(engine: RouterEngine, name: str) -> Operation[bool]:
    deleted: bool = yield Answered(lambda: engine.routers.delete(name))
    return deleted
