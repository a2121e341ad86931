"""The client gives what the embedded library gives: the same results, the same errors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.ipc
import pytest

import headwater
from headwater.core import errors
from headwater.core.records import Record
from headwater.core.results import Tombstone
from tests.rig.server_process import ServerProcess

pytestmark = pytest.mark.e2e

BYTES = b'{"a" : [1,  2.50, "\\u00e9"]}'


def use(database: Any) -> list[Any]:
    """A session of every call; what it gave, without times."""
    out: list[Any] = []
    state = database.create("parity.a", cap_records=3, durability="disk")
    out.append((state.topic, state.type, state.config["cap_records"], state.head_seq))
    written = database.append(
        "parity.a", [{"data": n, "tag": f"t{n % 2}", "meta": {"n": n}} for n in range(5)], node="me"
    )
    out.append(written)
    out.append(list(written.seqs))
    out.append(database.append("parity.a", {"data": msgspec.Raw(BYTES)}, idempotency_key="k"))
    out.append(database.append("parity.a", {"data": 0}, idempotency_key="k"))
    diff = database.diff("parity.a", limit=2)
    out.append((diff.next_from_seq, diff.head_seq, diff.caught_up, diff.tombstone, diff.lag))
    out += [(r.seq, r.node, r.tag, r.data_json, r.meta) for r in diff.records]
    out += [
        found if isinstance(found, Tombstone) else (found.seq, found.data_json)
        for found in database.watch("parity.a", idle_ms=0)
    ]
    out += [r.data for r in database.watch("parity.a", 3, idle_ms=0, match="t0")]
    out += [r.seq for r in database.watch("parity.a", 3, idle_ms=0, node="me")]
    out.append(list(database.watch("parity.a", tail=True, idle_ms=0)))
    out.append(database.delete("parity.a", match="t0"))
    out.append(database.delete("parity.a", before_seq=6))
    out.append([s.topic for s in database.topics("parity.")])
    out.append(database.drop("parity.a"))
    out.append(database.drop("parity.a"))
    return out


def test_a_session_gives_the_same_embedded_and_over_http(
    tmp_path: Path, client: headwater.Client
) -> None:
    with headwater.open(tmp_path / "embedded") as database:
        assert use(client) == use(database)


MISTAKES: list[tuple[type[errors.HeadwaterError], Callable[[Any], object]]] = [
    (errors.TopicNotFoundError, lambda db: db.state("nowhere")),
    (errors.TopicNotFoundError, lambda db: db.diff("nowhere")),
    (errors.TopicNotFoundError, lambda db: db.append("nowhere", {"data": 1}, create=False)),
    (errors.InvalidRequestError, lambda db: db.create("bad name!")),
    (errors.InvalidRequestError, lambda db: db.create("errors.x", colour="red")),
    (errors.InvalidRequestError, lambda db: db.delete("errors.log")),
    (errors.InvalidRequestError, lambda db: db.append("errors.log", {"text": 1})),
    (errors.InvalidRequestError, lambda db: db.append("errors.log", {"data": object()})),
    (errors.InvalidRequestError, lambda db: db.diff("errors.log", match="a*b*")),
    (errors.BatchTooLargeError, lambda db: db.append("errors.log", [{"data": 1}] * 10_001)),
    (errors.RecordTooLargeError, lambda db: db.append("errors.log", {"data": "x" * 2**20})),
    (errors.HeadConflictError, lambda db: db.append("errors.log", {"data": 1}, expect_head_seq=9)),
    (errors.TopicExistsIncompatibleError, lambda db: db.create("errors.log", type="queue")),
    (errors.TopicNotEmptyError, lambda db: db.drop("errors.log", if_empty=True)),
    (errors.TopicFullError, lambda db: db.append("errors.full", [{"data": 1}, {"data": 2}])),
]


@pytest.fixture(scope="module")
def both(shared: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory = tmp_path_factory.mktemp("embedded") / "data"
    with headwater.open(directory) as database, headwater.Client(shared.url) as client:
        for each in (database, client):
            each.create("errors.log")
            each.append("errors.log", {"data": 1})
            each.create("errors.full", cap_records=1, discard="reject")
        yield database, client


@pytest.mark.parametrize("number", range(len(MISTAKES)))
def test_a_mistake_is_the_same_error_embedded_and_over_http(both: Any, number: int) -> None:
    kind, mistake = MISTAKES[number]
    raised = []
    for database in both:
        with pytest.raises(kind) as caught:
            mistake(database)
        raised.append((type(caught.value), caught.value.code))
    assert raised[0] == raised[1]


def test_the_awaitable_client_gives_the_same_as_the_blocking_one(shared: ServerProcess) -> None:
    async def session() -> None:
        async with headwater.AsyncClient(shared.url) as client:
            await client.create("async.a", cap_records=10)
            written = await asyncio.gather(
                *(client.append("async.a", {"data": n, "tag": "x"}) for n in range(5))
            )
            assert sorted(w.first_seq for w in written) == [1, 2, 3, 4, 5]
            assert (await client.diff("async.a", 2)).head_seq == 5
            found = [r async for r in client.watch("async.a", 3, idle_ms=0)]
            assert [r.seq for r in found if isinstance(r, Record)] == [4, 5]
            live = client.watch("async.a", 4)
            first = await anext(live)
            assert isinstance(first, Record)
            assert first.seq == 5
            await client.append("async.a", {"data": "later"})
            later = await anext(live)
            assert isinstance(later, Record)
            assert later.data == "later"
            assert (await client.delete("async.a", before_seq=3)).deleted == 2
            assert [s.topic for s in await client.topics("async.")] == ["async.a"]
            assert (await client.state("async.a")).count == 4
            assert await client.ready() == "ok"
            assert (await client.metrics())["headwater_topics"] >= 1
            assert await client.drop("async.a") is True
            with pytest.raises(errors.TopicNotFoundError):
                await client.state("async.a")

    asyncio.run(session())


def test_lists_of_topics_longer_than_a_page_come_whole(client: headwater.Client) -> None:
    for number in range(30):
        client.create(f"many.{number:02d}", durability="memory")
    from headwater.core import limits

    size, limits.PAGE_SIZE_MAX = limits.PAGE_SIZE_MAX, 7  # type: ignore[misc]
    try:
        assert len(client.topics("many.")) == 30
    finally:
        limits.PAGE_SIZE_MAX = size  # type: ignore[misc]


def test_pages_of_arrow_tell_where_to_go_on_and_what_was_lost(client: headwater.Client) -> None:
    client.create("arrow.a", cap_records=4)
    client.append("arrow.a", [{"data": number, "tag": "t"} for number in range(10)])
    first = client.arrow("arrow.a", limit=3)
    assert (first.next_from_seq, first.caught_up, first.epoch) == (9, False, 1)
    assert first.tombstone is not None
    assert (first.tombstone.gap_from, first.tombstone.gap_to) == (1, 6)
    found = pyarrow.ipc.open_stream(first.stream).read_all()
    assert found["seq"].to_pylist() == [7, 8, 9]
    second = client.arrow("arrow.a", first.next_from_seq, to_seq=20)
    assert (second.caught_up, second.tombstone) == (True, None)
    with pytest.raises(errors.TopicNotFoundError):
        client.arrow("arrow.nothing")


def test_an_awaitable_client_reads_pages_of_arrow_too(shared: ServerProcess) -> None:
    async def session() -> None:
        async with headwater.AsyncClient(shared.url) as client:
            await client.append("arrow.b", [{"data": number} for number in range(3)])
            page = await client.arrow("arrow.b", 1)
            assert pyarrow.ipc.open_stream(page.stream).read_all()["seq"].to_pylist() == [2, 3]

    asyncio.run(session())
