"""A server that goes away and comes back: nothing acked is lost, nothing is written twice."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from pathlib import Path

import pytest

import headwater
from headwater.client import NoAnswerError, Retry, UnreachableError
from headwater.core.records import Record
from headwater.wire.machine_answers import TransitionAnswer
from tests.e2e.client.conftest import QUICK
from tests.machines.conftest import ORDER
from tests.rig.server_process import ServerProcess

pytestmark = pytest.mark.e2e


def all_of(client: headwater.Client, topic: str) -> list[object]:
    return [r.data for r in client.watch(topic, idle_ms=0) if isinstance(r, Record)]


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
def test_writers_go_on_over_restarts_and_nothing_is_lost_or_doubled(
    server: ServerProcess, kill: bool
) -> None:
    """Three writers, a server that is ended again and again under them."""
    stop = threading.Event()
    progress = threading.Semaphore(0)
    acked: list[list[int]] = [[], [], []]
    failures: list[BaseException] = []

    def write(number: int) -> None:
        try:
            with headwater.Client(server.url, retry=QUICK, rng=random.Random(number)) as client:
                for count in itertools.count():
                    if stop.is_set():
                        return
                    client.append("load", [{"data": [number, count, part]} for part in range(2)])
                    acked[number].append(count)
                    progress.release()
        except BaseException as error:
            failures.append(error)
            progress.release()
            raise

    writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for writer in writers:
        writer.start()
    try:
        for _ in range(3):
            for _ in range(25):
                assert progress.acquire(timeout=60)
            server.restart(kill=kill)
    finally:
        stop.set()
        for writer in writers:
            writer.join(60)
    assert failures == []
    with headwater.Client(server.url) as client:
        found = all_of(client, "load")
    expected = [[n, count, part] for n in range(3) for count in acked[n] for part in range(2)]
    assert sorted(found) == sorted(expected)  # type: ignore[type-var]


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
def test_a_watch_goes_on_over_restarts_without_a_gap_or_a_repeat(
    server: ServerProcess, kill: bool
) -> None:
    with headwater.Client(server.url, retry=QUICK) as client:
        client.append("live", [{"data": n} for n in range(3)])
        watch = client.watch("live")
        seen = [next(watch) for _ in range(3)]
        for round_ in range(2):
            server.restart(kill=kill)
            client.append("live", [{"data": [round_, n]} for n in range(3)])
            seen += [next(watch) for _ in range(3)]
    assert [r.seq for r in seen if isinstance(r, Record)] == list(range(1, 10))


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
def test_a_watch_of_machines_that_may_be_idle_is_not_ended_by_a_restart(
    server: ServerProcess, kill: bool
) -> None:
    """Only quiet ends it: the end of a server's life is no quiet."""
    with headwater.Client(server.url, retry=QUICK) as client:
        machines = client.machines
        machines.put_machine("order", 1, ORDER)
        machines.create_instance("order", 1, "o-1", {"amount": 1})
        machines.apply_event("o-1", "PAY")
        watch = machines.watch(from_offset=0, idle_ms=60_000)
        seen = [next(watch)]
        server.restart(kill=kill)
        machines.apply_event("o-1", "SHIP")
        seen.append(next(watch))
    assert [each.event for each in seen if isinstance(each, TransitionAnswer)] == ["PAY", "SHIP"]


def test_an_awaitable_watch_goes_on_over_a_restart_too(server: ServerProcess) -> None:
    async def session() -> list[int]:
        loop = asyncio.get_running_loop()
        async with headwater.AsyncClient(server.url, retry=QUICK) as client:
            await client.append("live", {"data": 1})
            watch = client.watch("live")
            seen = [await anext(watch)]
            await loop.run_in_executor(None, server.restart)
            await client.append("live", {"data": 2})
            seen.append(await anext(watch))
            return [r.seq for r in seen if isinstance(r, Record)]

    assert asyncio.run(session()) == [1, 2]


def test_a_prefix_watch_finds_what_was_made_while_it_was_away(server: ServerProcess) -> None:
    with headwater.Client(server.url, retry=QUICK) as client:
        client.append("p.old", {"data": "before"})
        client.append("q.other", {"data": "not meant"})
        watch = client.watch_topics("p.*", tail=True)
        client.append("p.old", {"data": "unseen"})  # the watch begins when it is first asked
        follower = threading.Thread(target=lambda: seen.append(next(watch)))
        seen: list[object] = []
        follower.start()
        while follower.is_alive():
            client.append("p.old", {"data": "live"})
            follower.join(0.05)
        server.restart(kill=True)
        client.append("p.new", {"data": "made meanwhile"})
        for found in watch:
            if found.topic == "p.new":
                assert isinstance(found.item, Record)
                assert found.item.data == "made meanwhile"
                break
            assert isinstance(found.item, Record)
            assert found.item.data == "live"


def test_a_prefix_watch_hands_nothing_over_twice(server: ServerProcess) -> None:
    """More topics than a watch can name: some of them are begun again at their first record."""
    names = [f"many.{number:03}" for number in range(300)]
    with headwater.Client(server.url, retry=QUICK) as client:
        settings = {"durability": "disk"}
        for name in names:
            client.append(name, [{"data": 1}, {"data": 2}], settings=settings)
        watch = client.watch_topics({"many.*": 0})
        found = [next(watch) for _ in range(2 * len(names))]
        server.restart(kill=False)
        for name in names:
            client.append(name, {"data": 3})
        found += [next(watch) for _ in names]
    seen = sorted((each.topic, each.item.data) for each in found if isinstance(each.item, Record))
    assert seen == [(name, data) for name in names for data in (1, 2, 3)]


def test_a_server_that_is_not_there_is_told_after_the_time_allowed() -> None:
    with (
        headwater.Client("http://127.0.0.1:9", retry=Retry(give_up_after_s=0.0)) as client,
        pytest.raises(UnreachableError, match=r"cannot reach http://127\.0\.0\.1:9"),
    ):
        client.append("a", {"data": 1})


def test_a_topic_that_remembers_no_keys_is_not_written_to_again_in_doubt(tmp_path: Path) -> None:
    """The answer is lost on its way: with a window the write is repeated, without it is told."""
    with ServerProcess(tmp_path / "data") as server, LosesAnswers(server.port) as proxy:
        with headwater.Client(server.url) as direct:
            direct.create("remembers")
            direct.create("forgets", idempotency_window_ms=0)
        with headwater.Client(proxy.url, retry=QUICK) as client:
            proxy.lose_next_answer()
            assert client.append("remembers", {"data": 1}).deduped
            proxy.lose_next_answer()
            with pytest.raises(NoAnswerError, match="may or may not"):
                client.append("forgets", {"data": 1})
            proxy.lose_next_answer()
            with pytest.raises(NoAnswerError):
                client.drop("forgets")
            proxy.lose_next_answer()
            assert client.state("remembers").count == 1
        with headwater.Client(server.url) as direct:
            assert len(all_of(direct, "remembers")) == 1


class LosesAnswers:
    """Stands between client and server, and can break a connection after the request got through
    and was carried out."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._lose = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.url = ""

    def lose_next_answer(self) -> None:
        self._lose.set()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        listening = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        self._started.set()
        await self._stop.wait()
        listening.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, out = await asyncio.open_connection("127.0.0.1", self._to)

        async def forward() -> None:
            while data := await reader.read(65_536):
                out.write(data)
            out.close()

        forwarding = asyncio.ensure_future(forward())
        while data := await there.read(65_536):
            if self._lose.is_set():
                self._lose.clear()
                break
            writer.write(data)
        writer.close()
        forwarding.cancel()
        out.close()

    def __enter__(self) -> LosesAnswers:
        self._thread.start()
        assert self._started.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()
