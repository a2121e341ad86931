"""Watches of an open database end when it is closed, and hold nothing when they are given up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import headwater

PATIENCE_S = 20
WATCHES: list[Callable[[headwater.Database], Iterator[Any]]] = [
    lambda db: db.watch("there"),
    lambda db: db.watch_topics(["there"]),
    lambda db: db.watch_topics("nothing.*"),
]


@pytest.mark.parametrize("number", range(len(WATCHES)))
def test_a_watch_that_waits_is_told_that_the_database_was_closed(
    tmp_path: Path, number: int
) -> None:
    db = headwater.open(tmp_path / "data")
    db.create("there")
    watch = WATCHES[number](db)
    raised: list[type[BaseException]] = []

    def follow() -> None:
        try:
            next(watch)
        except BaseException as error:
            raised.append(type(error))

    thread = threading.Thread(target=follow)
    thread.start()
    topic = db.engine.topic("there")
    while thread.is_alive() and not (topic.waiters or db.engine.core.waiters):
        thread.join(0.001)
    db.close()
    thread.join(PATIENCE_S)
    assert raised == [headwater.ClosedError]


def test_a_watch_of_machines_ends_when_the_database_is_closed(tmp_path: Path) -> None:
    db = headwater.open(tmp_path / "data")
    db.machines.wal_stats()
    store = db.engine.machines.store
    assert store is not None
    seen: list[Any] = []
    thread = threading.Thread(target=lambda: seen.extend(db.machines.watch()))
    thread.start()
    while thread.is_alive() and not store.watcher_count:
        thread.join(0.001)
    db.close()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert seen == []


def test_watches_that_are_given_up_leave_no_waiter_behind(tmp_path: Path) -> None:
    async def story() -> None:
        async with await headwater.open_async(tmp_path / "data") as db:
            await db.create("there")
            tasks: list[asyncio.Future[Any]] = [
                asyncio.ensure_future(anext(watch))
                for watch in (db.watch("there"), db.watch_topics(["there", "other*"]))
            ]
            topic, core = db.engine.topic("there"), db.engine.core
            while not (len(topic.waiters) == 2 and core.waiters):
                await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            assert not topic.waiters
            assert not core.waiters

    asyncio.run(asyncio.wait_for(story(), PATIENCE_S))
