"""What callers can do with routers, written once for threads and for event loops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater.engine.engine import Engine
from headwater.engine.routers import RouterState
from headwater.engine.steps import Answered, AsOwner, Steps, loaded_steps
from headwater.engine.topic import Topic


def put_router_steps(
    engine: Engine, name: str, settings: Mapping[str, Any]
) -> Steps[tuple[RouterState, bool]]:
    """Define a router. Gives its state, and whether it was made by this."""
    dest: Topic | None = yield AsOwner(lambda: engine.find(str(settings.get("dest"))))
    if dest is not None:
        yield from loaded_steps(engine, dest)
    found: tuple[RouterState, bool] = yield Answered(lambda: engine.routers.put(name, settings))
    return found


def router_steps(engine: Engine, name: str) -> Steps[RouterState]:
    state: RouterState = yield AsOwner(lambda: engine.routers.state(engine.routers.get(name)))
    return state


def routers_steps(
    engine: Engine, prefix: str, source: str | None, dest: str | None
) -> Steps[list[RouterState]]:
    states: list[RouterState] = yield AsOwner(
        lambda: [
            engine.routers.state(router) for router in engine.routers.list(prefix, source, dest)
        ]
    )
    return states


def delete_router_steps(engine: Engine, name: str) -> Steps[bool]:
    deleted: bool = yield Answered(lambda: engine.routers.delete(name))
    return deleted
