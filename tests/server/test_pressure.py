"""Pressure over a real socket, on a disk whose syncs a test holds up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headwater.config.engine import EngineSettings
from headwater.config.wal import WalSettings
from headwater.model.pressure import Rung
from headwater.testing import ManualClock
from headwater.wal.shard import Shard
from tests.rig.captured_logs import captured_logs
from tests.server.gated_disk import GatedDisk
from tests.server.raw_http import Answer, RawHttp
from tests.server.running_server import RunningServer, eventually, running
from tests.server.watches import watching

SAMPLE_US = 100_000
ROOM = 64
ROOM_BYTES = 256 * 1024
SMALL_ROOM = EngineSettings(
    wal=WalSettings(
        shards=1,
        file_bytes=8 * 1024 * 1024,
        queue_submissions_max=ROOM,
        queue_bytes_max=ROOM_BYTES,
    )
)


@contextmanager
def pressed(directory: Path, **options: Any) -> Iterator[tuple[RunningServer, GatedDisk]]:
    disk = GatedDisk()
    with running(directory, disk=disk, engine_settings=SMALL_ROOM, **options) as server:
        try:
            yield server, disk
        finally:
            disk.syncs.open()
            disk.reads.open()


def shard_of(server: RunningServer) -> Shard:
    wal = server.app.backend.engine.core.wal
    assert wal is not None
    return wal.shards[0]


def rungs(server: RunningServer) -> set[Rung]:
    return set(server.app.backend.engine.pressure_control.governor.rungs)


def metrics(http: RawHttp) -> dict[str, Any]:
    found: dict[str, Any] = http.get("/v0/metrics", accept="application/json").json["metrics"]
    return found


class Pusher:
    """A client that writes and does not wait: many writes are under way on one connection."""

    def __init__(self, server: RunningServer, number: int) -> None:
        self._http = server.talk()
        self._number = number
        self.sent = 0

    def push(self, count: int) -> None:
        for _ in range(count):
            body = {
                "records": [{"data": f"{self._number}-{self.sent}", "meta": {"pad": "x" * 500}}]
            }
            self._http.send(self._http.request("POST", "/v0/topics/load", body))
            self.sent += 1

    def answers(self) -> list[tuple[str, Answer]]:
        """What was written, with its answer, in order."""
        found = [(f"{self._number}-{at}", self._http.answer()) for at in range(self.sent)]
        self.sent = 0
        self._http.close()
        return found


def advance(server: RunningServer, clock: ManualClock, samples: int) -> None:
    for _ in range(samples):
        clock.advance(SAMPLE_US)
        server.inside(server.app.backend.engine.pressure_control.tick)


@pytest.mark.claims(340, 345, 346, 347)
def test_saturation_refuses_at_once_loses_nothing_stays_bounded_and_ends_by_itself(
    tmp_path: Path,
) -> None:
    with pressed(tmp_path / "data") as (server, disk), server.talk() as http:
        assert http.write("load", "calm").status == 201
        pushers = [Pusher(server, number) for number in range(8)]
        disk.syncs.close()
        with server.talk() as first:
            first.send(first.request("POST", "/v0/topics/load", {"records": [{"data": "first"}]}))
            assert disk.syncs.somebody_waits.wait(20)
        for pusher in pushers:
            pusher.push(2 * ROOM)
        eventually(lambda: Rung.REFUSE in rungs(server))

        full_us = server.app.clock.monotonic_us()
        shard = shard_of(server)
        assert shard.queue_fill <= 1.0
        assert len(server.app.backend.engine.core.shards[0].pending) <= ROOM + 1
        with server.talk() as late:
            refused = late.write("load", "late")
            assert (refused.status, refused.code) == (429, "throttled")
            assert refused.headers["retry-after"] == "1"
            assert refused.json["error"]["detail"] == {"pressure": 1.0}
            assert late.write("load", "late", disable_backpressure=True).status == 429, "no room"
            assert late.diff("load").json["records"][0]["data"] == "calm", "reading goes on"
        told = metrics(http)
        assert told["headwater_pressure"] == 1.0
        assert told["headwater_pressure_rung{rung=refuse}"] == 1
        assert told["headwater_pressure_signal{signal=backlog}"] == 1.0
        assert told["headwater_writes_refused"] > 0

        held_ms = (server.app.clock.monotonic_us() - full_us) / 1_000
        disk.syncs.open()
        acked, codes = [], set()
        slowest = 0.0
        for pusher in pushers:
            for data, answer in pusher.answers():
                codes.add(answer.status)
                if answer.status == 200:
                    acked.append(data)
                    slowest = max(slowest, answer.json["performance"]["server_total_ms"])
                else:
                    assert answer.code == "throttled"
                    assert "retry-after" in answer.headers
        assert codes == {200, 429}
        assert slowest >= held_ms, "load costs latency"
        eventually(lambda: is_over(metrics(http)))
        assert http.write("load", "after").status == 200
        survived = stored(http)
        assert len(acked) >= ROOM
    assert sorted(survived) == sorted(["calm", "first", *acked, "after"])
    with running(tmp_path / "data", engine_settings=SMALL_ROOM) as server, server.talk() as http:
        assert stored(http) == survived, "all of it, and nothing that was refused"


def is_over(told: dict[str, Any]) -> bool:
    """Pressure is gone, and every rung that was entered was left."""
    entered, left = (
        {
            rung: told[f"headwater_pressure_transitions{{rung={rung.value},change={change}}}"]
            for rung in Rung
        }
        for change in ("entered", "left")
    )
    return told["headwater_pressure"] < 0.2 and entered == left and entered[Rung.REFUSE] > 0


def stored(http: RawHttp) -> list[Any]:
    found: list[Any] = []
    page: dict[str, Any] = {"next_from_seq": 0, "caught_up": False}
    while not page["caught_up"]:
        page = http.diff("load", page["next_from_seq"], limit=1000).json
        found += [record["data"] for record in page["records"]]
    return found


@pytest.mark.claims(344, 346)
def test_a_topic_of_band_0_is_deferred_under_pressure_readable_and_served_after(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    with pressed(tmp_path / "data", clock=clock) as (server, disk), server.talk() as http:
        http.put("slow")
        http.put("low", durability="ephemeral", priority=-500)
        http.put("high", durability="ephemeral", priority=500)
        with (
            watching(server, {"low": {}}) as low,
            watching(server, {"high": {}}) as high,
            server.talk() as stuck,
            captured_logs() as lines,
        ):
            disk.syncs.close()
            stuck.send(stuck.request("POST", "/v0/topics/slow", {"records": [{"data": 1}]}))
            assert disk.syncs.somebody_waits.wait(20)
            advance(server, clock, 13)
            assert rungs(server) == {Rung.COALESCE, Rung.WIDEN, Rung.DEFER}
            http.write("low", "waits")
            http.write("high", "goes")
            assert high.records(1)[0]["data"] == "goes"
            control = server.app.backend.engine.pressure_control
            assert server.inside(lambda: control.ready_topics) == 1
            assert http.diff("low").json["records"][0]["data"] == "waits"
            disk.syncs.open()
            assert stuck.answer().status == 200
            advance(server, clock, 1)
            assert low.records(1)[0]["data"] == "waits"
            assert rungs(server) == set()
    told = [(line["rung"], line["event"]) for line in lines if "rung" in line]
    assert told == [
        ("coalesce", "pressure rose"),
        ("widen", "pressure rose"),
        ("defer", "pressure rose"),
        ("coalesce", "pressure fell"),
        ("widen", "pressure fell"),
        ("defer", "pressure fell"),
    ]
    deferred = next(line for line in lines if line.get("rung") == "defer")
    assert (deferred["level"], deferred["pressure"]) == ("warning", 1.0)
    assert "band 0" in deferred["now"]


@pytest.mark.one_process
@pytest.mark.claims(343, 347)
def test_an_answer_tells_what_pressure_added_to_its_wait(tmp_path: Path) -> None:
    clock = ManualClock()
    with pressed(tmp_path / "data", clock=clock) as (server, _), server.talk() as http:
        http.put("t")
        assert http.write("t", 1).json["performance"]["throttle_wait_ms"] == 0
        window = shard_of(server).window
        window.set_pressure(1.0)
        window.observe(2, 0)
        parks = clock.park_count
        http.send(http.request("POST", "/v0/topics/t", {"records": [{"data": 2}]}))
        clock.wait_for_waiters(1, after_parks=parks)
        clock.advance(10_000)
        performance = http.answer().json["performance"]
        # 0.5 ms for company are no throttling.
        assert performance["throttle_wait_ms"] == 9.5
        assert performance["server_total_ms"] == 10


@pytest.mark.claims(341)
def test_readers_that_wait_for_the_disk_are_pressure(tmp_path: Path) -> None:
    names = [f"t{number}" for number in range(EngineSettings().reader_threads)]
    with running(tmp_path / "data") as server, server.talk() as http:
        for name in names:
            http.write(name, 1)
    clock = ManualClock()
    with pressed(tmp_path / "data", clock=clock) as (server, disk), server.talk() as http:
        readers = [server.talk() for _ in names]
        disk.reads.close()
        for reader, name in zip(readers, names, strict=True):
            reader.send(reader.request("POST", f"/v0/topics/{name}/diff", {}))
        pool = server.app.backend.engine.pressure_control.pool
        eventually(lambda: server.inside(lambda: pool.running) == len(names))
        advance(server, clock, 2)
        assert metrics(http)["headwater_pressure_signal{signal=pool}"] == 1.0
        assert metrics(http)["headwater_pressure"] == 1.0
        disk.reads.open()
        for reader in readers:
            assert reader.answer().json["records"][0]["data"] == 1
            reader.close()
        advance(server, clock, 1)
        assert metrics(http)["headwater_pressure"] == 0.0


def test_metrics_name_every_signal_and_every_rung(tmp_path: Path) -> None:
    with running(tmp_path / "data") as server, server.talk() as http:
        text = http.get("/v0/metrics").body.decode()
        for name in ("ready", "latency", "pool", "backlog", "stall"):
            assert f'headwater_pressure_signal{{signal="{name}"}} 0.0' in text
        for rung in Rung:
            assert f'headwater_pressure_rung{{rung="{rung.value}"}} 0.0' in text
        assert "headwater_scheduling_latency_seconds 0.0" in text
        assert metrics(http)["headwater_ready_topics"] == 0
