"""`headwater.open` and `headwater.open_async`: how programs open the embedded library."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from os import PathLike, fspath
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal, overload

from headwater.config.engine import EngineSettings
from headwater.core.clock import Clock, SystemClock
from headwater.disk import Disk, PosixDisk
from headwater.engine import database
from headwater.engine import read_only as beside_owner
from headwater.engine.async_database import AsyncDatabase
from headwater.engine.drivers import AsyncDriver, BlockingDriver
from headwater.engine.engine import Engine
from headwater.engine.owner import BatonOwner, LoopOwner

if TYPE_CHECKING:
    from headwater.engine.database import Database
    from headwater.engine.read_only import ReadOnlyDatabase
from headwater.observe.waits import Waits

Progress = Callable[[float], None]


@overload
def open_database(
    directory: str | PathLike[str],
    *,
    read_only: Literal[False] = False,
    settings: EngineSettings | None = None,
    progress: Progress | None = None,
    disk: Disk | None = None,
    clock: Clock | None = None,
) -> Database: ...


@overload
def open_database(
    directory: str | PathLike[str],
    *,
    read_only: Literal[True],
    settings: EngineSettings | None = None,
    progress: Progress | None = None,
    disk: Disk | None = None,
    clock: Clock | None = None,
) -> ReadOnlyDatabase: ...


def open_database(
    directory: str | PathLike[str],
    *,
    read_only: bool = False,
    settings: EngineSettings | None = None,
    progress: Progress | None = None,
    disk: Disk | None = None,
    clock: Clock | None = None,
) -> Database | ReadOnlyDatabase:
    """Open a data directory, making it if its parent is there. Recovers first if need be.

    `read_only` reads beside a running owner, takes no lock and changes nothing. `progress` is
    called with 0 to 1 while recovering. `disk` and `clock` are for tests.
    """
    arguments = (
        disk or PosixDisk(),
        PurePath(fspath(directory)),
        settings or EngineSettings(),
        clock or SystemClock(),
    )
    if read_only:
        return beside_owner.open_read_only(*arguments, progress or _silent)
    engine = Engine(*arguments, BatonOwner(), progress or _silent)
    return database.Database(engine, BlockingDriver(engine.core))


async def open_database_async(
    directory: str | PathLike[str],
    *,
    settings: EngineSettings | None = None,
    progress: Progress | None = None,
    disk: Disk | None = None,
    clock: Clock | None = None,
) -> AsyncDatabase:
    """The awaitable twin of `open`: for one event loop, whose thread owns the database."""
    loop = asyncio.get_running_loop()
    chosen = settings or EngineSettings()
    readers = ThreadPoolExecutor(chosen.reader_threads, thread_name_prefix="headwater-reader")

    time = clock or SystemClock()
    waits = Waits(time, chosen.wait_us_min)

    def start() -> Engine:
        return Engine(
            disk or PosixDisk(),
            PurePath(fspath(directory)),
            chosen,
            time,
            LoopOwner(loop, time, waits),
            progress or _silent,
            waits=waits,
        )

    try:
        engine = await loop.run_in_executor(readers, start)
    except BaseException:
        readers.shutdown(wait=False)
        raise
    driver = AsyncDriver(engine.core, engine.pressure_control.pool, loop, readers)
    return AsyncDatabase(engine, driver)


def _silent(_: float) -> None:
    """The caller shows no progress."""
