"""What is sent on one connection takes effect in the order in which it was sent."""

from __future__ import annotations

from pathlib import Path

from tests.server.gated_disk import GatedDisk
from tests.server.running_server import running
from tests.server.test_websocket import open_socket


def test_publications_keep_their_order_while_their_topic_is_read_from_its_files(
    tmp_path: Path,
) -> None:
    directory, disk, count = tmp_path / "data", GatedDisk(), 100
    with running(directory) as server, server.talk() as http:
        for name in ("a", "b"):
            http.write(name, "before")
        for other in ("c", "d"):
            # A start reads only what came after the last but one.
            server.app.backend.engine.checkpoint()
            http.write(other, "before")
    with running(directory, disk=disk) as server, open_socket(server) as ws:
        assert not server.app.backend.engine.topic("a").loaded
        disk.reads.close()
        for number in range(count):
            ws.say("publish", topic="ab"[number % 2], records=[{"data": number}], request_id=number)
        ws.say("ping", request_id="last")
        assert disk.reads.somebody_waits.wait(20)
        disk.reads.open()
        answers = [ws.hear() for _ in range(count + 1)]
        with server.talk() as http:
            for place, name in enumerate("ab"):
                found = [record["data"] for record in http.diff(name).json["records"]]
                assert found == ["before", *range(place, count, 2)]
    assert {answer["request_id"] for answer in answers} == {*range(count), "last"}


def test_a_request_behind_writes_finds_what_they_wrote(tmp_path: Path) -> None:
    """All of it is sent before any of it is answered, and the log is slow."""
    disk = GatedDisk()
    with running(tmp_path / "data", disk=disk) as server, server.talk() as http:
        http.write("a", 0)
        disk.syncs.close()
        writes = [
            http.request("POST", "/v0/topics/a", {"records": [{"data": number}]})
            for number in range(1, 20)
        ]
        http.send(b"".join([*writes, http.request("POST", "/v0/topics/a/diff", {})]))
        assert disk.syncs.somebody_waits.wait(20)
        disk.syncs.open()
        written = [http.answer() for _ in writes]
        read = http.answer()
    assert [answer.json["last_seq"] for answer in written] == list(range(2, 21))
    assert [record["data"] for record in read.json["records"]] == list(range(20))
