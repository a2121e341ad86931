"""Work that nobody waits for fails where nobody sees it: the server tells of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from headwater.config.machines import CompactionSettings
from tests.machines.test_machine_http import create, put
from tests.rig.captured_logs import captured_logs
from tests.server.gated_disk import GatedDisk
from tests.server.running_server import SMALL_ENGINE, eventually, running, settings

EAGER = replace(SMALL_ENGINE, checkpoint_interval_ms=20, checkpoint_tail_bytes=1)


def test_checkpoints_that_fail_are_told_in_the_log_and_in_the_metrics(tmp_path: Path) -> None:
    disk = GatedDisk()
    disk.concerns = lambda path: "topics" in path.parts
    with (
        captured_logs() as lines,
        running(tmp_path / "data", settings(), disk=disk, engine_settings=EAGER) as server,
        server.talk() as http,
    ):

        def failing() -> int:
            metrics = http.get("/v0/metrics", accept="application/json").json["metrics"]
            return int(metrics["headwater_housekeeping_failing"])

        def told() -> list[str]:
            return [line["level"] for line in lines if "maintenance" in line["event"]]

        assert failing() == 0
        disk.is_full = True
        http.write("a", 1)
        eventually(lambda: failing() == 1 and told() == ["warning"])
        assert http.write("a", 2).status == 200
        disk.is_full = False
        eventually(lambda: failing() == 0 and told() == ["warning", "info"])
        assert server.app.backend.engine.topic("a").checkpointed_seq == 2


def test_a_compaction_that_fails_is_told_until_one_succeeds(tmp_path: Path) -> None:
    disk = GatedDisk()
    disk.concerns = lambda path: "snapshots" in path.parts
    often = CompactionSettings(events_threshold=1, min_interval_ms=1)
    machines = replace(SMALL_ENGINE.machines, compaction=often, keep_interval_ms=10)
    engine = replace(SMALL_ENGINE, machines=machines)
    with (
        captured_logs() as lines,
        running(tmp_path / "data", settings(), disk=disk, engine_settings=engine) as server,
        server.talk() as http,
    ):

        def told() -> list[str]:
            return [line["level"] for line in lines if "maintenance" in line["event"]]

        disk.is_full = True
        put(http, "order")
        eventually(lambda: told() == ["warning"])
        assert create(http, "order", "o-1").status == 201, "nobody waits for it"
        disk.is_full = False
        eventually(lambda: told() == ["warning", "info"])
        store = server.app.backend.engine.machines.store
        assert store is not None
        assert store.compactor.count
