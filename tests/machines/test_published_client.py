"""The published client `rstmdb`, unchanged, through its whole surface against a server process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import rstmdb
from rstmdb.models import ErrorCode, Operation

from tests.machines.conftest import ORDER
from tests.rig.server_process import ServerProcess
from tests.server.test_foreign_clients import certificate as make_certificate

pytestmark = pytest.mark.e2e

SECRET = "rcpx-admin-secret"
READER = "rcpx-reader-secret"
TENANT = "rcpx-tenant-secret"


def port_of(server: ServerProcess, ports: Path) -> int:
    found: int = json.loads(ports.read_text(encoding="utf-8"))["rcpx"]
    return found


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    directory = tmp_path_factory.mktemp("rcpx")
    ports = directory / "ports.json"
    with ServerProcess(
        directory / "data",
        *("--rcpx-port", "0", "--port-file", str(ports)),
        HEADWATER_MACHINE_ALLOW_FLUSH_ALL="true",
    ) as server:
        yield port_of(server, ports)


def run(port: int, story: Callable[[rstmdb.Client], Awaitable[None]], **options: Any) -> None:
    async def act() -> None:
        async with rstmdb.Client(port=port, request_timeout=20, **options) as client:
            await story(client)

    asyncio.run(asyncio.wait_for(act(), 60))


async def refused(call: Awaitable[Any]) -> ErrorCode:
    with pytest.raises(rstmdb.ServerError) as error:
        await call
    return error.value.code


@asynccontextmanager
async def events_of(client: rstmdb.Client) -> AsyncIterator[Callable[[], Awaitable[Any]]]:
    stream = client.events()

    async def following() -> Any:
        return await asyncio.wait_for(anext(stream), 20)

    yield following


@pytest.mark.claims(52)
def test_machines_and_instances_live_through_the_published_client(port: int) -> None:
    async def story(client: rstmdb.Client) -> None:
        assert await client.ping()
        info = await client.info()
        assert (info["protocol_version"], info["server_name"]) == (1, "headwater")
        made = await client.put_machine("order", 1, ORDER)
        assert (made.machine, made.version, made.created) == ("order", 1, True)
        assert not (await client.put_machine("order", 1, ORDER)).created
        found = await client.get_machine("order", 1)
        assert (found.definition, found.checksum) == (ORDER, made.stored_checksum)
        assert [each["machine"] for each in await client.list_machines()] == ["order"]
        created = await client.create_instance("order", 1, "o-1", {"amount": 3}, "make-1")
        assert (created.instance_id, created.state) == ("o-1", "created")
        again = await client.create_instance("order", 1, "o-1", {"amount": 3}, "make-1")
        assert again.wal_offset == created.wal_offset
        anonymous = await client.create_instance("order", 1)
        assert anonymous.instance_id
        moved = await client.apply_event("o-1", "PAY", {"by": "ann"}, "created", "pay-1")
        assert (moved.from_state, moved.to_state, moved.applied) == ("created", "paid", True)
        assert moved.wal_offset > created.wal_offset
        repeat = await client.apply_event("o-1", "PAY", {"by": "ann"}, "created", "pay-1")
        assert (repeat.wal_offset, repeat.applied) == (moved.wal_offset, False)
        instance = await client.get_instance("o-1")
        assert (instance.state, instance.ctx) == ("paid", {"amount": 3, "by": "ann"})
        listed = await client.list_instances("order", "paid", limit=1, offset=0)
        assert ([each.id for each in listed.instances], listed.total) == (["o-1"], 1)
        assert (await client.list_instances("order", limit=1)).has_more
        assert (await client.delete_instance("o-1", "gone-1"))["deleted"]
        assert not (await client.delete_instance("o-1", "gone-1"))["applied"]

    run(port, story)


@pytest.mark.parametrize("mode", ["atomic", "best_effort"])
def test_batches_go_through_the_clients_own_connection(port: int, mode: str) -> None:
    async def story(client: rstmdb.Client) -> None:
        await client.put_machine(f"batch-{mode}", 1, ORDER)
        name = f"b-{mode}"
        params = {
            "mode": mode,
            "ops": [
                {
                    "op": "CREATE_INSTANCE",
                    "params": {
                        "machine": f"batch-{mode}",
                        "version": 1,
                        "instance_id": name,
                        "initial_ctx": {"amount": 1},
                    },
                },
                {"op": "APPLY_EVENT", "params": {"instance_id": name, "event": "SHIP"}},
                {"op": "APPLY_EVENT", "params": {"instance_id": name, "event": "PAY"}},
            ],
        }
        if mode == "atomic":
            assert await refused(client._request(Operation.BATCH, params)) == (
                ErrorCode.INVALID_TRANSITION
            )
            assert await refused(client.get_instance(name)) == ErrorCode.INSTANCE_NOT_FOUND
            return
        done = await client._request(Operation.BATCH, params)
        assert [each["status"] for each in done["results"]] == ["ok", "error", "ok"]
        assert (await client.get_instance(name)).state == "paid"

    run(port, story)


def test_watches_push_what_happens_and_end_when_told(port: int) -> None:
    async def story(client: rstmdb.Client) -> None:
        await client.put_machine("watched", 1, ORDER)
        await client.create_instance("watched", 1, "w-1", {"amount": 1})
        one = await client.watch_instance("w-1")
        assert (one.instance_id, one.current_state) == ("w-1", "created")
        shipped = await client.watch_all(machines=["watched"], to_states=["shipped"])
        assert shipped.wal_offset > one.current_wal_offset
        async with events_of(client) as following:
            moved = await client.apply_event("w-1", "PAY", {"by": "ann"})
            event = await following()
            assert (event.subscription_id, event.wal_offset) == (
                one.subscription_id,
                moved.wal_offset,
            )
            assert (event.payload, event.ctx) == ({"by": "ann"}, {"amount": 1, "by": "ann"})
            await client.apply_event("w-1", "SHIP")
            names = {(await following()).subscription_id, (await following()).subscription_id}
            assert names == {one.subscription_id, shipped.subscription_id}
            assert (await client.unwatch(one.subscription_id)).removed
            assert not (await client.unwatch(one.subscription_id)).removed
            await client.create_instance("watched", 1, "w-2", {"amount": 1})
            await client.apply_event("w-2", "PAY")
            await client.apply_event("w-2", "SHIP")
            assert (await following()).instance_id == "w-2"

    run(port, story)


def test_a_watch_from_an_offset_brings_history_first(port: int) -> None:
    async def story(client: rstmdb.Client) -> None:
        await client.put_machine("replayed", 1, ORDER)
        made = await client.create_instance("replayed", 1, "r-1", {"amount": 1})
        await client.apply_event("r-1", "PAY")
        await client._request(
            Operation.WATCH_ALL,
            {"machines": ["replayed"], "from_offset": made.wal_offset, "include_ctx": False},
        )
        async with events_of(client) as following:
            assert (await following()).event == "PAY"
            await client.apply_event("r-1", "SHIP")
            last = await following()
            assert (last.event, last.ctx) == ("SHIP", None)

    run(port, story)


@pytest.mark.claims(84, 86)
def test_the_log_is_read_counted_and_compacted(port: int) -> None:
    async def story(client: rstmdb.Client) -> None:
        await client.put_machine("logged", 1, ORDER)
        made = await client.create_instance("logged", 1, "l-1")
        page = await client.wal_read(made.wal_offset, 1)
        assert [each["type"] for each in page["entries"]] == ["CreateInstance"]
        assert page["entries"][0]["data"]["instance_id"] == "l-1"
        stats = await client.wal_stats()
        assert stats.latest_offset == made.wal_offset
        assert stats.segment_count >= 1
        assert stats.io_stats.fsyncs >= 1
        raw = await client._request(Operation.WAL_STATS, {})
        assert {"current_offset", "oldest_segment", "newest_segment"} <= set(raw)
        assert (await client.compact(force_snapshot=True))["snapshot_id"]
        snapshot = await client._request(Operation.SNAPSHOT_INSTANCE, {"instance_id": "l-1"})
        assert (snapshot["instance_id"], snapshot["state"]) == ("l-1", "created")
        assert (await client.get_instance("l-1")).state == "created"

    run(port, story)


def test_bad_input_gets_its_code_and_changes_nothing(port: int) -> None:
    async def story(client: rstmdb.Client) -> None:
        await client.put_machine("strict", 1, ORDER)
        await client.create_instance("strict", 1, "s-1")
        before, end = await client.get_instance("s-1"), await client.wal_stats()
        raw = client._request
        assert await refused(client.apply_event("s-1", "PAY")) == ErrorCode.GUARD_FAILED
        assert await refused(client.apply_event("s-1", "X")) == ErrorCode.INVALID_TRANSITION
        assert await refused(client.apply_event("s-1", "PAY", expected_state="paid")) == (
            ErrorCode.CONFLICT
        )
        assert await refused(client.create_instance("strict", 1, "s-1")) == (
            ErrorCode.INSTANCE_EXISTS
        )
        assert await refused(client.put_machine("strict", 1, {**ORDER, "meta": {}})) == (
            ErrorCode.MACHINE_VERSION_EXISTS
        )
        assert await refused(client.put_machine("strict", 2, {"states": []})) == (
            ErrorCode.BAD_REQUEST
        )
        assert await refused(client.get_machine("strict", 9)) == ErrorCode.MACHINE_NOT_FOUND
        for op, params in (
            (Operation.APPLY_EVENT, {"instance_id": "s-1"}),
            (Operation.BATCH, {"mode": "atomic"}),
            (Operation.BATCH, {"mode": "maybe", "ops": [{"op": "PING"}]}),
            (Operation.LIST_INSTANCES, {"limit": -1}),
        ):
            assert await refused(raw(op, params)) == ErrorCode.BAD_REQUEST
        assert await client.get_instance("s-1") == before
        assert (await client.wal_stats()).latest_offset == end.latest_offset

    run(port, story)


def test_flush_all_removes_everything_where_it_is_allowed(port: int) -> None:
    async def story(client: rstmdb.Client) -> None:
        await client.put_machine("flushed", 1, ORDER)
        await client.create_instance("flushed", 1, "f-1")
        done = await client.flush_all()
        assert done.flushed
        assert done.instances_removed >= 1
        assert await client.list_machines() == []

    run(port, story)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, str]]:
    """A server with TLS and keys."""
    directory = tmp_path_factory.mktemp("guarded")
    certificate, key = make_certificate(directory)
    ports = directory / "ports.json"
    with ServerProcess(
        directory / "data",
        *("--rcpx-port", "0", "--port-file", str(ports)),
        HEADWATER_TLS_CERTIFICATE=str(certificate),
        HEADWATER_TLS_KEY=str(key),
        HEADWATER_API_KEYS=f"{SECRET},{READER}:read,{TENANT}:read+write:mine",
    ) as server:
        yield port_of(server, ports), str(certificate)


def test_tls_and_a_key_open_the_door(guarded: tuple[int, str]) -> None:
    port, certificate = guarded

    async def story(client: rstmdb.Client) -> None:
        await client.put_machine("secured", 1, ORDER)
        assert [each["machine"] for each in await client.list_machines()] == ["secured"]
        assert await refused(client.flush_all()) == ErrorCode.BAD_REQUEST

    run(port, story, token=SECRET, ca_cert=certificate, host="localhost")


def test_without_a_key_nothing_but_greetings_is_answered(guarded: tuple[int, str]) -> None:
    port, certificate = guarded

    async def story(client: rstmdb.Client) -> None:
        assert await client.ping()
        for call in (client.info(), client.list_machines(), client.wal_stats()):
            assert await refused(call) == ErrorCode.UNAUTHORIZED

    run(port, story, ca_cert=certificate, host="localhost")

    async def wrong() -> None:
        client = rstmdb.Client(
            host="localhost", port=port, token="not-the-secret", ca_cert=certificate
        )
        try:
            assert await refused(client.connect()) == ErrorCode.AUTH_FAILED
        finally:
            await client.close()  # it does not do so itself

    asyncio.run(wrong())


def test_a_key_does_what_its_scopes_and_prefixes_say(guarded: tuple[int, str]) -> None:
    port, certificate = guarded

    async def reader(client: rstmdb.Client) -> None:
        assert isinstance(await client.list_machines(), list)
        assert await refused(client.put_machine("x", 1, ORDER)) == ErrorCode.UNAUTHORIZED
        assert await refused(client.wal_read()) == ErrorCode.UNAUTHORIZED

    async def admin(client: rstmdb.Client) -> None:
        await client.put_machine("theirs", 1, ORDER)
        await client.create_instance("theirs", 1, "t-1")

    async def tenant(client: rstmdb.Client) -> None:
        await client.put_machine("mine", 1, ORDER)
        await client.create_instance("mine", 1, "m-1")
        assert [each["machine"] for each in await client.list_machines()] == ["mine"]
        assert await refused(client.get_instance("t-1")) == ErrorCode.INSTANCE_NOT_FOUND
        assert await refused(client.apply_event("t-1", "PAY")) == ErrorCode.INSTANCE_NOT_FOUND
        assert await refused(client.create_instance("theirs", 1)) == ErrorCode.UNAUTHORIZED
        assert await refused(client.watch_all()) == ErrorCode.UNAUTHORIZED
        assert await refused(client.list_instances()) == ErrorCode.UNAUTHORIZED
        assert (await client.watch_all(machines=["mine"])).subscription_id

    options = {"ca_cert": certificate, "host": "localhost"}
    run(port, reader, token=READER, **options)
    run(port, admin, token=SECRET, **options)
    run(port, tenant, token=TENANT, **options)
