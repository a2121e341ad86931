"""Embedded and over HTTP, blocking and awaitable: the calls that all four have do the same."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import pyarrow.ipc
import pytest

import headwater
from headwater.api.async_face import AsyncFace
from headwater.api.face import Face
from headwater.core import errors
from headwater.core.results import ClaimedJob, Watched
from tests.e2e.client.conftest import QUICK
from tests.rig.server_process import ServerProcess

pytestmark = pytest.mark.e2e

PLACES = ("embedded", "over HTTP")
PATIENCE_S = 20


@pytest.fixture(params=PLACES)
def face(request: pytest.FixtureRequest, tmp_path: Path, shared: ServerProcess) -> Iterator[Face]:
    with ExitStack() as stack:
        if request.param == "embedded":
            yield stack.enter_context(headwater.open(tmp_path / "data"))
        else:
            yield stack.enter_context(headwater.Client(shared.url, retry=QUICK))


def in_both(
    shared: ServerProcess, tmp_path: Path, story: Callable[[AsyncFace], Awaitable[None]]
) -> None:
    """The story, for the awaitable faces, one after the other."""

    async def run() -> None:
        async with AsyncExitStack() as stack:
            faces: list[AsyncFace] = [
                await stack.enter_async_context(await headwater.open_async(tmp_path / "data")),
                await stack.enter_async_context(headwater.AsyncClient(shared.url, retry=QUICK)),
            ]
            for face in faces:
                await asyncio.wait_for(story(face), PATIENCE_S)

    asyncio.run(run())


def said(watched: Watched) -> tuple[str, object]:
    item = watched.item
    return watched.topic, item.data if isinstance(item, headwater.Record) else type(item).__name__


def take(watch: Iterator[Watched], count: int) -> list[tuple[str, object]]:
    return [said(next(watch)) for _ in range(count)]


async def take_async(watch: AsyncIterator[Watched], count: int) -> list[tuple[str, object]]:
    return [said(await anext(watch)) for _ in range(count)]


def clean(face: Face, *names: str) -> None:
    for name in names:
        face.drop(name)


def test_several_topics_are_watched_with_those_that_are_made_later(face: Face) -> None:
    clean(face, "w.a", "w.b", "w.later", "other")
    face.append("w.a", [{"data": 1}, {"data": 2, "tag": "x"}])
    face.append("w.b", {"data": 3})
    face.append("other", [{"data": 4}, {"data": 5}])
    watch = face.watch_topics({"w.*": 0, "other": 1})
    assert sorted(take(watch, 4), key=str) == [("other", 5), ("w.a", 1), ("w.a", 2), ("w.b", 3)]
    timer = threading.Timer(0.05, lambda: face.append("w.later", {"data": 6}))
    timer.start()
    assert take(watch, 1) == [("w.later", 6)]
    timer.join()
    timer = threading.Timer(0.05, lambda: face.drop("w.b"))
    timer.start()
    assert take(watch, 1) == [("w.b", "TopicGone")]
    timer.join()
    face.append("w.b", {"data": 7})
    assert take(watch, 1) == [("w.b", 7)]


def test_a_watch_of_several_topics_begins_at_the_end_where_that_is_wanted(face: Face) -> None:
    clean(face, "t.a", "t.b")
    for topic in ("t.a", "t.b"):
        face.append(topic, {"data": "old"})
    watch = face.watch_topics(["t.a", "t.b"], tail=True, match="new*")
    timer = threading.Timer(
        0.1,
        lambda: [
            face.append("t.b", [{"data": 1}, {"data": 2, "tag": "new-1"}]),
            face.drop("t.a"),
            face.drop("t.b"),
        ],
    )
    timer.start()
    seen = [said(each) for each in watch]
    timer.join()  # the watch may hear of the last drop before who asked for it
    assert ("t.b", 2) in seen
    assert sorted(each for each in seen if each[1] == "TopicGone") == [
        ("t.a", "TopicGone"),
        ("t.b", "TopicGone"),
    ]
    assert ("t.b", 1) not in seen
    assert ("t.a", "old") not in seen


def test_a_tombstone_stands_in_a_watch_of_several_topics_where_records_were_lost(
    face: Face,
) -> None:
    clean(face, "few")
    face.create("few", cap_records=2)
    face.append("few", [{"data": number} for number in range(5)])
    watch = face.watch_topics("few")
    assert take(watch, 3) == [("few", "Tombstone"), ("few", 3), ("few", 4)]


@pytest.mark.parametrize(
    ("kind", "topics"),
    [
        (errors.InvalidRequestError, []),
        (errors.InvalidRequestError, ["bad name!"]),
        (errors.InvalidRequestError, {"a": -1}),
    ],
)
def test_a_watch_that_cannot_be_is_refused_before_it_begins(
    face: Face, kind: type[Exception], topics: Any
) -> None:
    with pytest.raises(kind):
        face.watch_topics(topics)
    with pytest.raises(errors.InvalidRequestError):
        face.watch("a", match="a*b*", idle_ms=0).__next__()


def test_a_watch_of_a_topic_that_is_not_there_says_so(face: Face) -> None:
    with pytest.raises(errors.TopicNotFoundError):
        next(face.watch_topics(["nowhere"]))


def test_pages_of_arrow_are_the_same(face: Face) -> None:
    clean(face, "arrow.four")
    face.create("arrow.four", cap_records=4)
    face.append("arrow.four", [{"data": number, "tag": "t"} for number in range(10)])
    first = face.arrow("arrow.four", limit=3)
    assert (first.next_from_seq, first.caught_up) == (9, False)
    assert first.tombstone is not None
    assert (first.tombstone.gap_from, first.tombstone.gap_to) == (1, 6)
    assert pyarrow.ipc.open_stream(first.stream).read_all()["seq"].to_pylist() == [7, 8, 9]
    last = face.arrow("arrow.four", first.next_from_seq, to_seq=20)
    assert (last.caught_up, last.tombstone) == (True, None)
    with pytest.raises(errors.TopicNotFoundError):
        face.arrow("arrow.nothing")
    assert face.arrow("arrow.four", -1, to_seq=8, limit=0).next_from_seq == 7


def test_a_reader_beside_the_owner_gives_pages_of_arrow_too(tmp_path: Path) -> None:
    with (
        headwater.open(tmp_path / "data") as owner,
        headwater.open(tmp_path / "data", read_only=True) as reader,
    ):
        owner.append("a", [{"data": number} for number in range(3)])
        assert reader.arrow("a", 1) == owner.arrow("a", 1)


def test_readiness_and_metrics_are_told_alike(tmp_path: Path, client: headwater.Client) -> None:
    with headwater.open(tmp_path / "data") as database:
        for face in (database, client):
            clean(face, "counted", "jobs.counted")
            face.append("counted", [{"data": 1}, {"data": 2}])
            face.create("jobs.counted", type="queue")
            assert face.ready() == "ok"
            metrics = face.metrics()
            assert metrics["headwater_topic_head_seq{topic=counted}"] == 2
            assert metrics["headwater_topic_queue_ready{topic=jobs.counted}"] == 0
            assert metrics["headwater_appends"] >= 1
        embedded, served = database.metrics(), client.metrics()
        assert embedded["headwater_records_live"] == 2
        assert embedded["headwater_queue_topics"] == 1
        named = {name.partition("{")[0] for name in embedded}
        assert named <= {name.partition("{")[0] for name in served}


def jobs(face: Face, count: int, **settings: Any) -> None:
    clean(face, "jobs.four")
    face.create("jobs.four", type="queue", **settings)
    face.append("jobs.four", [{"data": number} for number in range(count)])


def test_a_worker_does_its_jobs_and_gives_back_those_that_fail(face: Face) -> None:
    jobs(face, 6)
    seen: list[int] = []
    outcomes: list[headwater.Outcome] = []

    def handle(job: ClaimedJob) -> None:
        seen.append(job.record.data)
        if job.deliveries == 1 and job.record.data == 2:
            raise headwater.GiveBackError(delay_ms=10)
        if job.deliveries == 1 and job.record.data == 4:
            raise ValueError("not this time")

    done = face.work(
        "jobs.four",
        handle,
        node="n",
        threads=2,
        limit=3,
        retry_ms=10,
        idle_ms=300,
        on_done=outcomes.append,
    )
    assert done == headwater.WorkDone(6, 2, 0)
    assert sorted(seen) == [0, 1, 2, 2, 3, 4, 4, 5]
    assert sorted(str(each.error) for each in outcomes if each.error is not None) == [
        "given back for 10 ms",
        "not this time",
    ]
    assert face.state("jobs.four").count == 0


def test_a_worker_holds_a_job_for_longer_than_its_lease(face: Face) -> None:
    jobs(face, 1)
    go_on = threading.Event()

    def handle(_job: ClaimedJob) -> None:
        go_on.wait(2.5)

    done = face.work("jobs.four", handle, node="slow", lease_ms=1_000, idle_ms=0)
    assert done == headwater.WorkDone(1, 0, 0)


def test_a_worker_that_is_stopped_ends_what_it_began_and_gives_back_the_rest(face: Face) -> None:
    jobs(face, 5)
    stop = headwater.Stop()
    begun: list[int] = []

    def handle(job: ClaimedJob) -> None:
        begun.append(job.record.data)
        stop.set()

    done = face.work("jobs.four", handle, threads=1, limit=5, stop=stop)
    assert (done, begun) == (headwater.WorkDone(1, 0, 0), [0])
    stats = face.queue_stats("jobs.four")
    assert (stats.ready, stats.in_flight) == (4, 0)


def test_a_worker_of_a_database_that_is_closed_ends_with_its_error(tmp_path: Path) -> None:
    database = headwater.open(tmp_path / "data")
    jobs(database, 1)
    with pytest.raises(errors.ClosedError):
        database.work("jobs.four", lambda _job: database.close())


def test_work_on_a_topic_that_is_no_queue_is_refused(face: Face) -> None:
    face.create("plain")
    with pytest.raises(errors.NotAQueueError):
        face.work("plain", lambda _job: None, lease_ms=1_000)


def test_the_awaitable_faces_watch_several_topics(shared: ServerProcess, tmp_path: Path) -> None:
    async def story(face: AsyncFace) -> None:
        for name in ("aw.a", "aw.b"):
            await face.drop(name)
        await face.append("aw.a", {"data": 1})
        watch = face.watch_topics("aw.*")
        assert await take_async(watch, 1) == [("aw.a", 1)]
        waiting = asyncio.create_task(take_async(watch, 2))
        await asyncio.sleep(0)
        await face.append("aw.b", {"data": 2})
        await face.drop("aw.a")
        assert sorted(await waiting) == [("aw.a", "TopicGone"), ("aw.b", 2)]

    in_both(shared, tmp_path, story)


def test_the_awaitable_faces_work_until_they_are_stopped_or_cancelled(
    shared: ServerProcess, tmp_path: Path
) -> None:
    async def story(face: AsyncFace) -> None:
        await face.drop("aw.jobs")
        await face.create("aw.jobs", type="queue")
        await face.append("aw.jobs", [{"data": number} for number in range(6)])
        stop, begun = headwater.Stop(), asyncio.Event()

        async def first_three(job: ClaimedJob) -> None:
            if job.record.data == 1 and job.deliveries == 1:
                raise headwater.GiveBackError
            if job.record.data == 3:
                stop.set()

        done = await face.work("aw.jobs", first_three, threads=1, limit=1, stop=stop)
        assert done.failed == 1

        async def for_ever(_job: ClaimedJob) -> None:
            begun.set()
            await asyncio.Event().wait()

        working = asyncio.create_task(face.work("aw.jobs", for_ever, threads=2, limit=4))
        await begun.wait()
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        stats = await face.queue_stats("aw.jobs")
        assert (stats.ready, stats.in_flight) == (6 - done.done, 0)

    in_both(shared, tmp_path, story)


def test_the_awaitable_faces_tell_of_themselves(shared: ServerProcess, tmp_path: Path) -> None:
    async def story(face: AsyncFace) -> None:
        await face.append("aw.c", {"data": 1}, idempotency_key="once")
        assert await face.ready() == "ok"
        assert (await face.metrics())["headwater_topic_head_seq{topic=aw.c}"] == 1
        page = await face.arrow("aw.c")
        assert pyarrow.ipc.open_stream(page.stream).read_all()["data"].to_pylist() == ["1"]
        assert (await face.put_router("aw>d", source="aw.c", dest="aw.d")).source == "aw.c"
        assert [each.router for each in await face.routers("aw")] == ["aw>d"]
        assert await face.delete_router("aw>d")

    in_both(shared, tmp_path, story)
