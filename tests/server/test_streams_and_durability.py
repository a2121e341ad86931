"""Strong streams, sessions that end, limits on streams: servers with their own disk or settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.config.engine import EngineSettings
from headwater.config.wal import WalSettings
from tests.server.gated_disk import GatedDisk
from tests.server.raw_http import Events, RawHttp
from tests.server.running_server import RunningServer, eventually, running, settings
from tests.server.watches import open_watch, stream, watching


@pytest.fixture
def disk() -> GatedDisk:
    return GatedDisk()


@pytest.fixture
def gated(tmp_path: Path, disk: GatedDisk) -> Iterator[RunningServer]:
    engine = EngineSettings(wal=WalSettings(shards=1, file_bytes=1024 * 1024))
    with running(tmp_path / "data", disk=disk, engine_settings=engine) as server:
        try:
            yield server
        finally:
            disk.syncs.open()


def write_without_sync(http: RawHttp, disk: GatedDisk, topic: str, data: object) -> None:
    """Acked by its class while the disk does not sync."""
    disk.syncs.close()
    assert http.write(topic, data).json["performance"]["fsync_ms"] == 0
    assert disk.syncs.somebody_waits.wait(20), "the background sync is under way"


@pytest.mark.claims(363)
def test_a_strong_stream_sees_a_record_only_when_it_is_synced(
    gated: RunningServer, disk: GatedDisk
) -> None:
    with gated.talk() as http:
        http.put("d", durability="disk")
        http.write("d", *range(3))
        with (
            watching(gated, {"d": {}}, consistency="strong") as strong,
            watching(gated, {"d": {}}) as eventual,
        ):
            assert len(strong.records(3)) == 3
            assert len(eventual.records(3)) == 3
            strong.until("caught-up")
            eventual.until("caught-up")
            write_without_sync(http, disk, "d", "unsynced")
            assert [r["data"] for r in eventual.records(1)] == ["unsynced"]
            with watching(gated, {"d": {}}, consistency="strong") as late:
                assert [r["$seq"] for r in late.records(3)] == [1, 2, 3]
                assert late.until("caught-up")[-1].data["seq"] == 3
                strong.connection.socket.settimeout(0.3)
                with pytest.raises(TimeoutError):
                    strong.next()
                strong.connection.socket.settimeout(20)
                disk.syncs.open()
                assert [r["data"] for r in strong.records(1)] == ["unsynced"]
                assert [r["data"] for r in late.records(1)] == ["unsynced"]


def test_a_strong_stream_of_a_durable_topic_waits_for_nothing_more(
    gated: RunningServer,
) -> None:
    with gated.talk() as http:
        http.put("f")
        with watching(gated, {"f": {}}, consistency="strong") as events:
            http.write("f", 1)
            assert events.records(1)[0]["data"] == 1


def test_what_is_never_synced_cannot_be_watched_with_strong_consistency(
    gated: RunningServer,
) -> None:
    with gated.talk() as http:
        http.put("e.ephemeral", durability="ephemeral")
        http.write("e.durable", 1)
        http.write("e.ephemeral", 2)
        topics = {"topics": {"e.ephemeral": {}}, "consistency": "strong"}
        assert http.ask("POST", "/v0/watch", topics).code == "invalid_request"
        with watching(gated, {"e.*": {}}, consistency="strong") as events:
            assert [r["data"] for r in events.records(1)] == [1]
            http.write("e.ephemeral", 3)
            http.write("e.durable", 4)
            assert [r["data"] for r in events.records(1)] == [4]


def test_a_memory_topic_reaches_strong_streams_by_the_timer(gated: RunningServer) -> None:
    with gated.talk() as http:
        http.put("m", durability="memory")
        with watching(gated, {"m": {}}, consistency="strong") as events:
            for number in range(50):
                http.write("m", number)
            assert [r["data"] for r in events.records(50)] == list(range(50))


# -- sessions and limits


def test_a_session_without_a_stream_expires_and_one_with_a_stream_does_not(
    tmp_path: Path,
) -> None:
    with running(tmp_path / "data", settings(session_ttl_ms=700)) as server, server.talk() as http:
        http.put("t")
        kept, left = open_watch(http, {"t": {}}), open_watch(http, {"t": {}})
        with stream(server, kept) as events:
            events.until("caught-up")
            eventually(lambda: len(server.app.sessions) == 1)
            assert http.get(f"/v0/watch/{left}").code == "not_found"
            http.write("t", 1)
            assert events.records(1)[0]["data"] == 1
        eventually(lambda: not len(server.app.sessions))
        assert http.get(f"/v0/watch/{kept}").code == "not_found"


def test_sessions_and_streams_have_limits_that_name_themselves(tmp_path: Path) -> None:
    limited = settings(limits={"watch_sessions": 3, "streams": 2, "streams_per_key": 2})
    with running(tmp_path / "data", limited) as server, server.talk() as http:
        http.put("t")
        wids = [open_watch(http, {"t": {}}) for _ in range(3)]
        refused = http.ask("POST", "/v0/watch", {"topics": {"t": {}}})
        assert (refused.status, refused.code) == (429, "throttled")
        assert refused.json["error"]["detail"]["limit"] == "watch_sessions"
        assert int(refused.headers["retry-after"]) >= 1
        with stream(server, wids[0]), stream(server, wids[1]):
            third = http.get(f"/v0/watch/{wids[2]}")
            assert (third.status, third.json["error"]["detail"]["limit"]) == (429, "streams")
        eventually(lambda: not server.app.access.quotas.streams)
        with stream(server, wids[2]) as events:
            assert events.until("caught-up")


def test_streams_that_end_leave_nothing_behind(tmp_path: Path) -> None:
    with running(tmp_path / "data") as server, server.talk() as http:
        http.write("t", 1)
        for _ in range(20):
            with watching(server, {"t": {}, "t*": {}}, consistency="strong") as events:
                events.until("caught-up")
        delivery, quotas = server.app.delivery, server.app.access.quotas
        eventually(lambda: not (quotas.streams or delivery.streams.sse_count))
        assert not len(delivery.streams)
        assert not delivery._followers
        assert not delivery._prefix_watchers
        assert not delivery._strong
        metrics = http.get("/v0/metrics", accept="application/json").json["metrics"]
        assert metrics["headwater_sse_connections"] == 0
        assert metrics["headwater_watch_sessions"] == 20


def test_a_stream_ends_with_the_server_and_its_cursor_stays_good(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with running(directory) as server, server.talk() as http, server.talk() as other:
        http.write("t", *range(5))
        events = Events(other, open_watch(http, {"t": {}}, limit=2))
        last = events.until("record")[-1]
        server.stop()
        with pytest.raises(ConnectionError):
            for _ in events:
                pass
    with running(directory) as server, server.talk() as http:
        wid = open_watch(http, {"t": {}})
        with stream(server, wid, last.id) as again:
            assert [r["$seq"] for r in again.records(5)] == [1, 2, 3, 4, 5]
