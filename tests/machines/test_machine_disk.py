"""Work on the machines' files that the disk refuses: the contract's code, and what it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.machines.test_machine_http import create, put
from tests.machines.test_rcpx_conduct import wire
from tests.server.gated_disk import GatedDisk
from tests.server.running_server import running, settings


@pytest.mark.parametrize(
    ("path", "op"),
    [("/v0/machines/compact", "COMPACT"), ("/v0/instances/o-1/snapshot", "SNAPSHOT_INSTANCE")],
)
def test_a_snapshot_there_is_no_room_for_is_a_full_disk_not_a_mistake_of_ours(
    tmp_path: Path, path: str, op: str
) -> None:
    disk = GatedDisk()
    disk.concerns = lambda path: "snapshots" in path.parts
    params = {} if op == "COMPACT" else {"instance_id": "o-1"}
    with (
        running(tmp_path / "data", settings(rcpx_port=0), disk=disk) as server,
        server.talk() as http,
    ):
        put(http, "order")
        create(http, "order", "o-1")
        assert server.app.rcpx is not None
        with wire(server.app.rcpx.port) as client:
            client.hello()
            disk.is_full = True
            told = http.ask("POST", path, {})
            assert (told.status, told.code) == (507, "disk_full")
            error = client.ask(op, params)["error"]
            assert (error["code"], error["retryable"]) == ("WAL_IO_ERROR", True)
            disk.is_full = False
            assert http.ask("POST", path, {}).status == 200
            client.ok(op, params)
