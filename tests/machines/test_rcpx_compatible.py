"""What clients that were written for another server of this protocol send and read."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwater.config.machines import MachineSettings
from headwater.format.crc32c import crc32c
from headwater.wire.machine_requests import LIST_LIMIT_DEFAULT, LIST_LIMIT_MAX
from headwater.wire.rcpx import (
    HEADER,
    PAYLOAD_BYTES_MAX,
    MessageReader,
    RcpxProtocolError,
    frame,
)
from tests.machines.conftest import ORDER
from tests.machines.test_rcpx_conduct import Wire, wire
from tests.server.raw_http import RawHttp
from tests.server.running_server import SMALL_ENGINE, RunningServer, running, settings


@pytest.fixture
def client(rcpx_port: int, name: str) -> Iterator[Wire]:
    with wire(rcpx_port) as made:
        made.hello()
        made.ok("PUT_MACHINE", {"machine": name, "version": 1, "definition": ORDER})
        yield made


def make(client: Wire, machine: str, instance: str) -> dict[str, Any]:
    asked = {"machine": machine, "version": 1, "instance_id": instance}
    return client.ok("CREATE_INSTANCE", {**asked, "initial_ctx": {"amount": 1}})


# -- what is answered


def test_the_log_is_read_as_records_with_the_entry_in_one_object(client: Wire, name: str) -> None:
    start = client.ok("WAL_STATS")["current_offset"]
    made = make(client, name, name)
    moved = client.ok("APPLY_EVENT", {"instance_id": name, "event": "PAY", "payload": {"n": 1}})
    client.ok("DELETE_INSTANCE", {"instance_id": name})
    page = client.ok("WAL_READ", {"from_offset": start, "limit": 10})
    first, second, third = page["records"]
    assert set(first) == {"sequence", "offset", "entry"}
    assert (first["offset"], second["offset"]) == (made["wal_offset"], moved["wal_offset"])
    assert second["sequence"] == first["sequence"] + 1
    assert first["entry"]["type"] == "create_instance"
    assert first["entry"]["instance_id"] == name
    assert first["entry"]["initial_state"] == "created"
    assert first["entry"]["initial_ctx"] == {"amount": 1}
    assert second["entry"]["type"] == "apply_event"
    assert second["entry"]["payload"] == {"n": 1}
    assert (second["entry"]["from_state"], second["entry"]["to_state"]) == ("created", "paid")
    assert third["entry"]["type"] == "delete_instance"
    assert [each["data"]["instance_id"] for each in page["entries"]] == [name] * 3
    assert page["next_offset"] > third["offset"]


def test_entries_of_every_type_are_records(client: Wire, name: str) -> None:
    make(client, name, name)
    client.ok("SNAPSHOT_INSTANCE", {"instance_id": name})
    client.ok("COMPACT")
    seen: dict[str, dict[str, Any]] = {}
    offset = 0
    while True:
        page = client.ok("WAL_READ", {"from_offset": offset})
        seen |= {each["entry"]["type"]: each["entry"] for each in page["records"]}
        offset = page["next_offset"]
        if not page["has_more"]:
            break
    assert {"put_machine", "create_instance", "snapshot"} <= set(seen)
    assert seen["put_machine"]["definition_hash"] == seen["put_machine"]["checksum"]
    assert seen["snapshot"]["snapshot_id"] == seen["snapshot"]["snapshot"]


def test_the_newest_entries_are_read_when_they_are_asked_for(client: Wire, name: str) -> None:
    offsets = [make(client, name, f"{name}-{number}")["wal_offset"] for number in range(5)]
    page = client.ok("WAL_READ", {"limit": 3, "newest": True})
    assert [each["offset"] for each in page["records"]] == offsets[2:]
    assert not page["has_more"]


def test_info_and_compact_answer_with_the_fields_their_clients_read(client: Wire) -> None:
    info = client.ok("INFO")
    assert info["max_frame_bytes"] == 16 * 1024 * 1024
    assert info["max_batch_ops"] == 100
    assert {"server_name", "server_version", "protocol_version", "features"} <= set(info)
    done = client.ok("COMPACT", {"force_snapshot": True})
    assert done["snapshots_created"] == 1
    assert done["total_snapshots"] >= 1
    assert done["wal_segments"] >= 1
    assert done["bytes_reclaimed"] >= done["segments_deleted"] == 0


def test_compact_tells_what_it_gave_back(tmp_path: Path) -> None:
    small = MachineSettings(
        wal_segment_bytes=64 * 1024,
        reserve_bytes=1024,
        zero_chunk_bytes=4096,
        transitions_topic=None,  # or its feeder may still need the segments
    )
    engine = replace(SMALL_ENGINE, machines=small)
    chosen = settings(rcpx_port=0, deadlines={"drain_s": 1.0})
    with running(tmp_path / "data", chosen, engine_settings=engine) as server:
        listener = server.app.rcpx
        assert listener is not None
        with wire(listener.port) as client:
            client.hello()
            client.ok("PUT_MACHINE", {"machine": "m", "version": 1, "definition": ORDER})
            for number in range(6):
                asked = {"machine": "m", "version": 1, "instance_id": str(number)}
                client.ok("CREATE_INSTANCE", {**asked, "initial_ctx": {"x": "y" * 30_000}})
            assert client.ok("COMPACT")["segments_deleted"] == 0, "the log stands in for it"
            before = client.ok("WAL_STATS")
            done = client.ok("COMPACT")
            after = client.ok("WAL_STATS")
    assert done["segments_deleted"] == before["segment_count"] - after["segment_count"] > 0
    assert done["bytes_reclaimed"] == done["segments_deleted"] * 64 * 1024
    assert done["wal_segments"] == after["segment_count"]


def test_a_snapshot_of_an_instance_has_its_size_and_checksum(
    client: Wire, name: str, server: RunningServer
) -> None:
    make(client, name, name)
    made = client.ok("SNAPSHOT_INSTANCE", {"instance_id": name})
    store = server.app.backend.engine.machines.store
    assert store is not None
    contents = Path(store.directory / "snapshots" / made["snapshot_id"]).read_bytes()
    assert made["size_bytes"] == len(contents)
    assert made["checksum"] == f"{crc32c(contents):08x}" != f"{zlib.crc32(contents):08x}"


def test_a_page_of_the_log_fits_into_a_frame(client: Wire, name: str) -> None:
    start = client.ok("WAL_STATS")["current_offset"]
    asked = {"machine": name, "version": 1, "initial_ctx": {"text": "x" * 900_000}}
    made = [client.ok("CREATE_INSTANCE", asked)["wal_offset"] for _ in range(12)]
    found: list[int] = []
    pages, offset, more = 0, start, True
    while more:
        client.say("WAL_READ", {"from_offset": offset, "limit": 1_000})
        client.reader = Measured(client.reader)
        page = client.hear()["result"]
        assert client.reader.longest <= PAYLOAD_BYTES_MAX
        found += [each["offset"] for each in page["records"]]
        pages, offset, more = pages + 1, page["next_offset"], page["has_more"]
    assert found == made
    assert pages > 1


class Measured(MessageReader):
    """Says how long the longest message was."""

    def __init__(self, before: MessageReader) -> None:
        super().__init__(4 * PAYLOAD_BYTES_MAX)
        self.mode = before.mode
        self._bytes_max = 4 * PAYLOAD_BYTES_MAX
        self.longest = 0

    def next_message(self) -> bytes | None:
        message = super().next_message()
        self.longest = max(self.longest, len(message or b""))
        return message


# -- what is taken


@pytest.mark.parametrize("limit", [0, None, LIST_LIMIT_MAX + 1, 2**31])
def test_a_limit_becomes_the_nearest_there_is(client: Wire, name: str, limit: int | None) -> None:
    make(client, name, name)
    for op, params in (
        ("WAL_READ", {"from_offset": 0}),
        ("LIST_INSTANCES", {"machine": name}),
        ("HISTORY", {"instance_id": name}),
    ):
        found = client.ok(op, {**params, "limit": limit})
        rows = found["instances"] if "instances" in found else found["entries"]
        wanted = LIST_LIMIT_DEFAULT if not limit else LIST_LIMIT_MAX
        assert 1 <= len(rows) <= wanted


def test_a_state_and_a_list_of_it_are_the_same_definition(client: Wire, name: str) -> None:
    listed = [{**each, "from": [each["from"]]} if isinstance(each["from"], str) else each
              for each in ORDER["transitions"]]  # fmt: skip
    same = {**ORDER, "transitions": listed, "meta": None}
    first = client.ok("GET_MACHINE", {"machine": name, "version": 1})
    again = client.ok("PUT_MACHINE", {"machine": name, "version": 1, "definition": same})
    assert not again["created"]
    assert again["stored_checksum"] == first["checksum"]
    other = {**same, "transitions": listed[:1]}
    refused = client.ask("PUT_MACHINE", {"machine": name, "version": 1, "definition": other})
    assert refused["error"]["code"] == "MACHINE_VERSION_EXISTS"


def test_a_definition_keeps_the_fields_that_nobody_knows(
    client: Wire, name: str, http: RawHttp
) -> None:
    more = {**ORDER, "meta": None, "layout": {"x": 1}}
    more["transitions"] = [{**each, "label": "then"} for each in ORDER["transitions"]]
    asked = {"machine": name, "version": 2, "definition": more}
    assert client.ok("PUT_MACHINE", asked)["created"]
    assert client.ok("GET_MACHINE", {"machine": name, "version": 2})["definition"] == more
    created = {"machine": name, "version": 2, "instance_id": name, "initial_ctx": {"amount": 1}}
    assert client.ok("CREATE_INSTANCE", created)["state"] == "created"
    over_http = http.ask("PUT", f"/v0/machines/{name}/versions/3", {"definition": more})
    assert over_http.status == 400


def test_definitions_with_unknown_fields_are_there_after_a_restart(tmp_path: Path) -> None:
    chosen = settings(rcpx_port=0, deadlines={"drain_s": 1.0})
    more = {**ORDER, "layout": {"x": 1}}
    for turn in range(3):
        with running(tmp_path / "data", chosen) as server:
            listener = server.app.rcpx
            assert listener is not None
            with wire(listener.port) as client:
                client.hello()
                asked = {"machine": "m", "version": 1, "definition": more}
                assert client.ok("PUT_MACHINE", asked)["created"] == (turn == 0)
                if turn == 1:
                    client.ok("COMPACT")


def test_unknown_params_are_passed_over(client: Wire, name: str, http: RawHttp) -> None:
    extra = {"surprise": 1}
    asked = {"machine": name, "version": 1, "instance_id": name, "initial_ctx": {"amount": 1}}
    client.ok("CREATE_INSTANCE", {**asked, **extra})
    for _ in range(2):  # the second one takes the short way
        client.ask("APPLY_EVENT", {"instance_id": name, "event": "PAY", **extra})
    for op, params in (
        ("INFO", {}),
        ("GET_INSTANCE", {"instance_id": name}),
        ("GET_MACHINE", {"machine": name, "version": 1}),
        ("LIST_INSTANCES", {"machine": name}),
        ("HISTORY", {"instance_id": name}),
        ("WAL_READ", {"from_offset": 0, "limit": 1}),
        ("COMPACT", {}),
        ("WATCH_INSTANCE", {"instance_id": name}),
        ("WATCH_ALL", {"machines": [name]}),
        ("UNWATCH", {"subscription_id": "nobody"}),
        ("BATCH", {"ops": [{"op": "APPLY_EVENT", "params": {
            "instance_id": name, "event": "SHIP", **extra}, **extra}]}),
        ("DELETE_INSTANCE", {"instance_id": name}),
    ):  # fmt: skip
        client.say(op, {**params, **extra})
        answer = client.hear()
        while answer["type"] != "response":
            answer = client.hear()
        assert answer["status"] == "ok", (op, answer)
    refused = http.ask("POST", "/v0/instances", {**asked, **extra})
    assert refused.status == 400


def test_a_batch_reads_pings_may_be_empty_and_goes_on_after_an_error(
    client: Wire, name: str
) -> None:
    assert client.ok("BATCH", {"ops": []})["results"] == []
    created = {"machine": name, "version": 1, "instance_id": name, "initial_ctx": {"amount": 1}}
    ops: list[dict[str, Any]] = [
        {"op": "CREATE_INSTANCE", "params": created},
        {"op": "GET_INSTANCE", "params": {"instance_id": name}},
        {"op": "APPLY_EVENT", "params": {"instance_id": name, "event": "SHIP"}},
        {"op": "APPLY_EVENT", "params": {"instance_id": name, "event": "PAY"}},
        {"op": "PING"},
        {"op": "GET_INSTANCE", "params": {"instance_id": name}},
        {"op": "GET_INSTANCE", "params": {"instance_id": "nobody"}},
    ]
    done = client.ok("BATCH", {"ops": ops})["results"]
    assert [each["status"] for each in done] == ["ok", "ok", "error", "ok", "ok", "ok", "error"]
    assert (done[1]["result"]["state"], done[5]["result"]["state"]) == ("created", "paid")
    assert done[5]["result"]["ctx"] == {"amount": 1}
    assert done[4]["result"] == {"pong": True}
    assert done[6]["error"]["code"] == "INSTANCE_NOT_FOUND"


def test_an_atomic_batch_reads_what_it_did_itself(client: Wire, name: str) -> None:
    created = {"machine": name, "version": 1, "instance_id": name, "initial_ctx": {"amount": 1}}
    ops: list[dict[str, Any]] = [
        {"op": "CREATE_INSTANCE", "params": created},
        {"op": "GET_INSTANCE", "params": {"instance_id": name}},
        {"op": "PING", "params": None},
    ]
    done = client.ok("BATCH", {"mode": "atomic", "ops": ops})["results"]
    assert done[1]["result"]["last_wal_offset"] == done[0]["result"]["wal_offset"]
    only_reads = client.ok("BATCH", {"mode": "atomic", "ops": ops[1:]})
    assert only_reads["success_count"] == 2
    missing = {"op": "GET_INSTANCE", "params": {"instance_id": "nobody"}}
    ops[0]["params"] = {**created, "instance_id": f"{name}-2"}
    refused = client.ask("BATCH", {"mode": "atomic", "ops": [ops[0], missing]})
    assert refused["error"]["code"] == "INSTANCE_NOT_FOUND"
    gone = client.ask("GET_INSTANCE", {"instance_id": f"{name}-2"})
    assert gone["error"]["code"] == "INSTANCE_NOT_FOUND"


def test_deleting_twice_succeeds_and_deleting_what_never_was_does_not(
    client: Wire, name: str, http: RawHttp
) -> None:
    make(client, name, name)
    first = client.ok("DELETE_INSTANCE", {"instance_id": name})
    again = client.ok("DELETE_INSTANCE", {"instance_id": name})
    assert (first["applied"], again["applied"]) == (True, False)
    assert (again["deleted"], again["wal_offset"]) == (True, first["wal_offset"])
    in_a_batch = {"ops": [{"op": "DELETE_INSTANCE", "params": {"instance_id": name}}] * 2}
    assert client.ok("BATCH", in_a_batch)["success_count"] == 2
    assert client.ok("BATCH", {**in_a_batch, "mode": "atomic"})["success_count"] == 2
    never = client.ask("DELETE_INSTANCE", {"instance_id": f"{name}-never"})
    assert never["error"]["code"] == "INSTANCE_NOT_FOUND"
    assert http.ask("DELETE", f"/v0/instances/{name}").status == 404
    make(client, name, name)
    assert client.ok("GET_INSTANCE", {"instance_id": name})["state"] == "created"
    assert client.ok("DELETE_INSTANCE", {"instance_id": name})["applied"]


def test_a_token_is_taken_where_no_keys_are_set(rcpx_port: int) -> None:
    with wire(rcpx_port) as client:
        client.hello()
        assert client.ok("AUTH", {"method": "bearer", "token": "my-secret-token"})["authenticated"]
        assert client.ok("PING") == {"pong": True}


@pytest.mark.parametrize("bit", [1, *range(4, 16)])
@pytest.mark.parametrize("alone", [True, False])
def test_flags_that_are_not_defined_are_refused(bit: int, alone: bool) -> None:
    good = frame(b"{}")
    fields = HEADER.unpack(good, 0)
    bad = good[:6] + (fields["flags"] | 1 << bit).to_bytes(2, "big") + good[8:]
    reader = MessageReader()
    reader.feed(good)
    assert reader.next_message() == b"{}"
    if alone:
        assert reader.only_message(bad) is None
    reader.feed(bad)
    with pytest.raises(RcpxProtocolError, match="undefined flags") as refused:
        reader.next_message()
    assert refused.value.code == "BAD_REQUEST"


# -- everything at once


def test_flush_all_waits_for_the_writes_before_it(tmp_path: Path) -> None:
    allowed = MachineSettings(allow_flush_all=True)
    engine = replace(SMALL_ENGINE, machines=allowed)
    chosen = settings(rcpx_port=0, deadlines={"drain_s": 1.0})
    with running(tmp_path / "data", chosen, engine_settings=engine) as server:
        listener = server.app.rcpx
        assert listener is not None
        with wire(listener.port) as client, wire(listener.port) as other:
            client.hello()
            other.hello()
            for turn in range(30):
                client.ok("PUT_MACHINE", {"machine": "m", "version": 1, "definition": ORDER})
                make(client, "m", f"i-{turn}")
                client.ok("SNAPSHOT_INSTANCE", {"instance_id": f"i-{turn}"})
                for number in range(5):
                    asked = {"machine": "m", "version": 1, "instance_id": f"o-{turn}-{number}"}
                    other.say("CREATE_INSTANCE", asked)
                flushed = client.ok("FLUSH_ALL")
                assert flushed["instances_removed"] >= 1
                codes = {other.hear().get("error", {}).get("code") for _ in range(5)}
                assert codes <= {None, "MACHINE_NOT_FOUND"}
            client.ok("FLUSH_ALL")
            assert client.ok("LIST_INSTANCES")["total"] == 0
