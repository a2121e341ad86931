"""Settings of a topic that several callers change at once."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import headwater
from headwater.core.errors import HeadwaterError
from tests.unit.engine.conftest import SMALL, Open

CHANGES: list[dict[str, Any]] = [
    {"cap_records": 7},
    {"ttl_ms": 600_000},
    {"priority": 3},
    {"dedupe_node": False},
    {"idempotency_window_ms": 1_000},
]


def is_set(config: dict[str, Any]) -> bool:
    return all(config[name] == value for change in CHANGES for name, value in change.items())


def test_changes_of_different_settings_at_once_all_hold(tmp_path: Path) -> None:
    async def story() -> None:
        async with await headwater.open_async(tmp_path / "data", settings=SMALL) as db:
            await db.create("t")
            states = await asyncio.gather(*(db.create("t", **change) for change in CHANGES))
            for change, state in zip(CHANGES, states, strict=True):
                assert change.items() <= state.config.items(), "each is told of its own"
            assert is_set((await db.state("t")).config)
        async with await headwater.open_async(tmp_path / "data", settings=SMALL) as db:
            assert is_set((await db.state("t")).config)

    asyncio.run(story())


def test_threads_that_change_settings_wait_for_each_other(opened: Open) -> None:
    db = opened()
    db.create("t")
    ready = threading.Barrier(len(CHANGES))

    def change(settings: dict[str, Any]) -> None:
        ready.wait()
        db.create("t", **settings)

    threads = [threading.Thread(target=change, args=(settings,)) for settings in CHANGES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert is_set(db.state("t").config)


def test_a_change_that_is_wrong_or_of_the_type_is_refused_behind_another(tmp_path: Path) -> None:
    async def story() -> None:
        async with await headwater.open_async(tmp_path / "data", settings=SMALL) as db:
            await db.create("t")
            good, wrong, other = await asyncio.gather(
                db.create("t", cap_records=7),
                db.create("t", cap_records=-1),
                db.create("t", type="queue"),
                return_exceptions=True,
            )
            assert not isinstance(good, BaseException)
            assert isinstance(wrong, HeadwaterError)
            assert isinstance(other, HeadwaterError)
            assert (await db.state("t")).config["cap_records"] == 7

    asyncio.run(story())
