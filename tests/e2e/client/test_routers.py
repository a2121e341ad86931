"""Routers through the client: the same as embedded, blocking and awaited."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater.core import errors
from tests.rig.server_process import ServerProcess

pytestmark = pytest.mark.e2e


def copied(database: Any, topic: str, count: int) -> list[Any]:
    """The first copies, as soon as they are there."""
    found: list[Any] = []
    for record in database.watch(topic, idle_ms=20_000):
        found.append((record.seq, record.tag, record.data))
        if len(found) == count:
            return found
    return found


def use(database: Any) -> list[Any]:
    """A session of every router call; what it gave."""
    out: list[Any] = []
    database.create("rt.in")
    out.append(database.put_router("rt.a", source="rt.in", dest="rt.out", filter="x*"))
    out.append(database.put_router("rt.b", source="rt.in", dest="rt.b", guarantee="exactly_once"))
    database.append("rt.in", [{"data": n, "tag": "xy" if n % 2 else "z"} for n in range(6)])
    out.append(copied(database, "rt.out", 3))
    out.append(copied(database, "rt.b", 6))
    out.append([(r.router, r.forwarded_total, r.lag) for r in database.routers("rt.")])
    out.append([r.router for r in database.routers(source="rt.in", dest="rt.b")])
    out.append(database.router("rt.a"))
    for wrong in (
        {"source": "rt.out", "dest": "rt.in"},
        {"source": "rt.nowhere", "dest": "rt.new", "create_source": False},
        {"source": "rt.in", "dest": "rt.in"},
        {"source": "rt.out", "dest": "rt.b"},
    ):
        with pytest.raises(errors.RequestError) as refused:
            database.put_router("rt.c", **wrong)
        out.append((type(refused.value), refused.value.detail))
    with pytest.raises(errors.RouterNotFoundError):
        database.router("rt.c")
    with pytest.raises(errors.TopicExistsIncompatibleError):
        database.append("rt.b", {"data": 1})
    out += [database.delete_router("rt.b"), database.delete_router("rt.b")]
    out += [database.drop("rt.in"), database.routers("rt.")]
    return out


def test_a_session_of_routers_gives_the_same_embedded_and_over_http(
    tmp_path: Path, client: headwater.Client
) -> None:
    with headwater.open(tmp_path / "embedded") as database:
        assert use(client) == use(database)


def test_both_awaited_faces_route_as_well(tmp_path: Path, shared: ServerProcess) -> None:
    async def session(database: Any) -> list[Any]:
        await database.create("ra.in")
        made = await database.put_router("ra.r", source="ra.in", dest="ra.out")
        await database.append("ra.in", [{"data": n} for n in range(3)])
        diff = await database.diff("ra.out", 0, wait_ms=20_000)
        while len(diff.records) < 3:
            diff = await database.diff("ra.out", 0, wait_ms=100)
        found = [made, [record.data for record in diff.records]]
        found += [await database.router("ra.r"), await database.routers("ra.")]
        found += [await database.delete_router("ra.r"), await database.routers("ra.")]
        return found

    async def both() -> tuple[list[Any], list[Any]]:
        async with await headwater.open_async(tmp_path / "embedded") as database:
            embedded = await session(database)
        async with headwater.AsyncClient(shared.url) as client:
            return embedded, await session(client)

    embedded, remote = asyncio.run(both())
    assert embedded == remote
