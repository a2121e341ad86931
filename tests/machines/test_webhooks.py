"""Webhooks: signed, in order, tried again, and going on where they were after a restart."""

from __future__ import annotations

import errno
import hmac
import json
import queue
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater.config.machines import MachineSettings
from headwater.core.errors import RequestError
from headwater.engine.machines import positions
from headwater.engine.machines.watchers import CatchUpPlan, CaughtUp
from headwater.model.machines.errors import MachineError
from headwater.server.machines import webhooks
from headwater.server.machines.webhooks import parse_webhook
from tests.machines.conftest import ORDER
from tests.machines.test_machine_http import apply, create, put
from tests.rig.server_process import ServerProcess
from tests.server.raw_http import RawHttp
from tests.server.running_server import SMALL_ENGINE, RunningServer, eventually, running, settings

SECRET = "shared-secret"


class Receiver(ThreadingHTTPServer):
    """Remembers what it was told; answers what it is told to, then 200."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.statuses: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.told: queue.SimpleQueue[tuple[dict[str, str], bytes]] = queue.SimpleQueue()
        self.gate = threading.Event()
        """Nothing is answered while it is shut."""
        self.gate.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/hook?token=hidden"

    def next(self) -> tuple[dict[str, str], Any]:
        headers, body = self.told.get(timeout=30)
        return headers, json.loads(body)


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            status = self.server.statuses.get_nowait()
        except queue.Empty:
            status = 200
        self.server.gate.wait(30)
        self.server.told.put(({k.lower(): v for k, v in self.headers.items()}, body))
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    thread = threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def served(directory: Path, receiver: Receiver, machine: str = "", **options: Any) -> Any:
    hook = f"{machine}={receiver.url}" if machine else receiver.url
    return running(
        directory,
        settings(webhooks=(hook,), webhook_secret=SECRET, webhook_retry_ms=1),
        **options,
    )


def wait_for_webhooks(server: RunningServer) -> None:
    eventually(lambda: [d.saved for d in server.app.webhooks.deliveries if d.saved])


def test_transitions_are_told_signed_and_in_order(tmp_path: Path, receiver: Receiver) -> None:
    with served(tmp_path / "data", receiver, "order") as server, server.talk() as http:
        wait_for_webhooks(server)
        put(http, "order")
        put(http, "other")
        for machine in ("other", "order"):
            create(http, machine, f"{machine}-1", initial_ctx={"amount": 1})
            apply(http, f"{machine}-1", "PAY", payload={"by": "ann"})
        moved = apply(http, "order-1", "SHIP").json
        headers, first = receiver.next()
        assert (first["type"], first["instance_id"], first["event"]) == (
            "transition",
            "order-1",
            "PAY",
        )
        assert (first["payload"], first["ctx"]) == ({"by": "ann"}, {"amount": 1, "by": "ann"})
        assert headers["headwater-delivery"] == first["wal_offset_text"]
        headers, second = receiver.next()
        assert second["wal_offset"] == moved["wal_offset"]
        body = json.dumps(second, separators=(",", ":"), ensure_ascii=False).encode()
        signed = headers["headwater-timestamp"].encode() + b"." + body
        wanted = hmac.new(SECRET.encode(), signed, "sha256").hexdigest()
        assert headers["headwater-signature"] == f"v1={wanted}"


def test_what_is_not_taken_is_tried_again_until_it_is(tmp_path: Path, receiver: Receiver) -> None:
    for status in (500, 404, 302):
        receiver.statuses.put(status)
    with served(tmp_path / "data", receiver) as server, server.talk() as http:
        wait_for_webhooks(server)
        put(http, "order")
        create(http, "order", "o-1", initial_ctx={"amount": 1})
        apply(http, "o-1", "PAY")
        apply(http, "o-1", "SHIP")
        events = [receiver.next()[1]["event"] for _ in range(5)]
    assert events == ["PAY", "PAY", "PAY", "PAY", "SHIP"]


def test_a_restart_goes_on_where_it_was(tmp_path: Path, receiver: Receiver) -> None:
    with served(tmp_path / "data", receiver) as server, server.talk() as http:
        wait_for_webhooks(server)
        put(http, "order")
        create(http, "order", "o-1", initial_ctx={"amount": 1})
        apply(http, "o-1", "PAY")
        assert receiver.next()[1]["event"] == "PAY"
        eventually(lambda: server.app.webhooks.deliveries[0].delivered == 1)
    # Nobody is told while the webhook is away; nothing is forgotten either.
    with running(tmp_path / "data", settings()) as server, server.talk() as http:
        apply(http, "o-1", "CANCEL")
    with served(tmp_path / "data", receiver) as server, server.talk() as http:
        apply(http, "o-1", "PAY")
        assert [receiver.next()[1]["event"] for _ in range(2)] == ["CANCEL", "PAY"]


@pytest.mark.e2e
def test_a_killed_server_tells_again_only_what_it_may_not_have_told(
    tmp_path: Path, receiver: Receiver
) -> None:
    with ServerProcess(tmp_path / "data", HEADWATER_WEBHOOKS=receiver.url) as server:
        place = tmp_path / "data" / "machines" / "webhooks"
        eventually(lambda: place.is_dir() and list(place.glob("*.json")))
        (position,) = place.glob("*.json")
        before = position.read_bytes()
        with headwater.Client(server.url) as client:
            client.machines.put_machine("order", 1, ORDER)
            client.machines.create_instance("order", 1, "o-1", {"amount": 1})
            client.machines.apply_event("o-1", "PAY")
            assert receiver.next()[1]["event"] == "PAY"
            eventually(lambda: position.read_bytes() != before)
        server.restart(kill=True)
        with headwater.Client(server.url) as client:
            client.machines.apply_event("o-1", "SHIP")
            assert receiver.next()[1]["event"] == "SHIP"


def test_a_server_killed_before_the_first_delivery_still_owes_it(
    tmp_path: Path, receiver: Receiver
) -> None:
    """Where a webhook begins is on disk before anything is delivered: later, the end of the log
    would be another."""
    receiver.statuses.put(500)
    asleep = settings(webhooks=(receiver.url,), webhook_retry_ms=600_000)
    with running(tmp_path / "data", asleep) as server, server.talk() as http:
        wait_for_webhooks(server)
        put(http, "order")
        create(http, "order", "o-1", initial_ctx={"amount": 1})
        apply(http, "o-1", "PAY")
        assert receiver.next()[1]["event"] == "PAY"
        shutil.copytree(tmp_path / "data", tmp_path / "killed")  # as a kill leaves it
    with served(tmp_path / "killed", receiver) as server, server.talk() as http:
        apply(http, "o-1", "SHIP")
        assert [receiver.next()[1]["event"] for _ in range(2)] == ["PAY", "SHIP"]


def test_a_receiver_that_is_gone_is_told_no_more(tmp_path: Path, receiver: Receiver) -> None:
    receiver.statuses.put(410)
    with served(tmp_path / "data", receiver) as server, server.talk() as http:
        wait_for_webhooks(server)
        put(http, "order")
        create(http, "order", "o-1", initial_ctx={"amount": 1})
        apply(http, "o-1", "PAY")
        receiver.next()
        assert apply(http, "o-1", "SHIP").status == 200
    assert receiver.told.empty()


def has_come_to(delivery: webhooks.WebhookDelivery, offset: int) -> bool:
    return delivery.position == offset


def test_a_full_disk_holds_up_no_webhook_and_costs_none_its_place(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    with served(tmp_path / "data", receiver) as server, server.talk() as http:
        wait_for_webhooks(server)
        (delivery,) = server.app.webhooks.deliveries
        put(http, "order")
        create(http, "order", "o-1", initial_ctx={"amount": 1})
        with monkeypatch.context() as patch:
            patch.setattr(positions, "replace_file", no_room)
            for event in ("PAY", "CANCEL"):
                place = delivery.saved
                moved = apply(http, "o-1", event).json["wal_offset"]
                assert receiver.next()[1]["event"] == event
                eventually(partial(has_come_to, delivery, moved + 1))
                assert delivery.saved == place
        apply(http, "o-1", "PAY")
        assert receiver.next()[1]["event"] == "PAY"
        eventually(lambda: delivery.saved == delivery.position)
        monkeypatch.setattr(positions, "replace_file", no_room)
    # Stopped in good order, though there was no room for the last place.


def test_a_log_that_could_not_be_read_for_a_moment_ends_no_webhook(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(tmp_path / "data", receiver) as server, server.talk() as http:
        wait_for_webhooks(server)
        put(http, "order")
        create(http, "order", "o-1", initial_ctx={"amount": 1})
    with running(tmp_path / "data", settings()) as server, server.talk() as http:
        apply(http, "o-1", "PAY")
    read, failures = CatchUpPlan.read, [OSError(errno.EIO, "input/output error")]

    def fails_once(plan: CatchUpPlan) -> CaughtUp:
        if failures:
            raise failures.pop()
        return read(plan)

    monkeypatch.setattr(CatchUpPlan, "read", fails_once)
    unfed = replace(SMALL_ENGINE, machines=MachineSettings(transitions_topic=None))
    with served(tmp_path / "data", receiver, engine_settings=unfed):
        assert receiver.next()[1]["event"] == "PAY"
    assert not failures


def test_an_address_that_cannot_be_is_refused_at_the_start() -> None:
    for text in ("ftp://x/", "order=nowhere", "https://", ""):
        with pytest.raises(RequestError):
            parse_webhook(text)
    with pytest.raises(MachineError):
        parse_webhook("no name=http://x/")
    assert parse_webhook("http://x/?a=b").machine is None
    assert parse_webhook("order=http://x/?a=b").machine == "order"
    assert "hidden" not in parse_webhook("order=http://x/?token=hidden").label


SHORT_LOG = replace(
    SMALL_ENGINE,
    machines=MachineSettings(wal_segment_bytes=65_536, watch_buffer_events=2),
)
"""Three of the events below fill a segment, and three are too many to remember."""


def turn(http: RawHttp, name: str, count: int) -> list[int]:
    """So many events, each with a payload of 20 kB; where they are in the log."""
    found = []
    for number in range(count):
        event = "CANCEL" if number % 2 else "PAY"
        moved = apply(http, name, event, payload={"text": "x" * 20_000})
        found.append(moved.json["wal_offset"])
    return found


def wait_for_the_topic(server: RunningServer, offset: int) -> None:
    """The topic of transitions holds the log as well; only webhooks are looked at here."""
    feeder = server.app.backend.engine.machines.feeder
    assert feeder is not None
    eventually(lambda: feeder.position > offset)


def compact(http: RawHttp) -> int:
    return int(http.ask("POST", "/v0/machines/compact", {}).json["segments_deleted"])


def test_a_webhook_that_is_behind_gets_everything_and_the_log_waits_for_it(
    tmp_path: Path, receiver: Receiver
) -> None:
    with (
        served(tmp_path / "data", receiver, engine_settings=SHORT_LOG) as server,
        server.talk() as http,
    ):
        wait_for_webhooks(server)
        put(http, "order")
        create(http, "order", "o-1", initial_ctx={"amount": 1})
        receiver.gate.clear()
        moved = turn(http, "o-1", 12)
        wait_for_the_topic(server, moved[-1])
        assert compact(http) == 0, "all of it is still owed"
        receiver.gate.set()
        told = [receiver.next()[1] for _ in moved]
        assert [each["type"] for each in told] == ["transition"] * 12
        assert [each["wal_offset"] for each in told] == moved
        moved = turn(http, "o-1", 4)
        assert [receiver.next()[1]["wal_offset"] for _ in moved] == moved, "and then goes live"
        eventually(lambda: compact(http) > 0)


def test_a_webhook_with_nothing_to_hear_of_does_not_hold_the_log(
    tmp_path: Path, receiver: Receiver
) -> None:
    options = {"engine_settings": SHORT_LOG}
    with served(tmp_path / "data", receiver, "other", **options) as server, server.talk() as http:
        wait_for_webhooks(server)
        for machine in ("order", "other"):
            put(http, machine)
            create(http, machine, f"{machine}-1", initial_ctx={"amount": 1})
        turn(http, "order-1", 12)
        eventually(lambda: compact(http) > 0)
    with served(tmp_path / "data", receiver, "other", **options) as server, server.talk() as http:
        apply(http, "other-1", "PAY")
        assert receiver.next()[1]["type"] == "transition", "nothing was missed, so nothing is said"


def test_a_webhook_that_is_too_far_behind_is_told_what_it_missed(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(positions, "WEBHOOK_HELD_BYTES_MAX", 65_536)
    with (
        served(tmp_path / "data", receiver, engine_settings=SHORT_LOG) as server,
        server.talk() as http,
    ):
        wait_for_webhooks(server)
        put(http, "order")
        create(http, "order", "o-1", initial_ctx={"amount": 1})
        receiver.gate.clear()
        moved = turn(http, "o-1", 15)
        wait_for_the_topic(server, moved[-1])
        compact(http)
        assert compact(http) > 0, "the log before the snapshot before"
        receiver.gate.set()
        told = [receiver.next()[1]]
        while told[-1].get("wal_offset") != moved[-1]:
            told.append(receiver.next()[1])
        (gap,) = [each for each in told if each["type"] == "gap"]
        lost = [at for at in moved if int(gap["first_offset"]) <= at <= int(gap["last_offset"])]
        got = [each["wal_offset"] for each in told if each["type"] == "transition"]
        assert lost
        assert sorted(lost + got) == moved, "each was told, or is in the gap"
