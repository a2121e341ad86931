"""What all keys share, no one key can take from the others."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.server.access.quotas import Shares
from headwater.wire.http_errors import HttpError
from tests.kafka.broker import running_broker
from tests.kafka.raw_kafka import RawKafka
from tests.kafka.test_server_access import plain, sign_in
from tests.machines.test_rcpx_conduct import wire
from tests.server.raw_http import Events, RawHttp
from tests.server.running_server import eventually, running, settings

GREEDY, OTHER = "greedy-secret", "other-secret"
KEYS = (f"{GREEDY}:read+write", f"{OTHER}:read+write")


@given(
    st.integers(1, 40),
    st.integers(1, 5),
    st.floats(0, 1),
    st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=200),
)
def test_a_limit_is_kept_and_so_is_the_part_of_each(
    total: int, holders: int, reserved: float, moves: list[tuple[int, bool]]
) -> None:
    shares = Shares("things", total, holders, reserved)
    held: Counter[bytes] = Counter()
    for number, takes in moves:
        holder = b"%d" % (number % holders)
        if not takes:
            if held[holder]:
                shares.give_back(holder)
                held[holder] -= 1
            continue
        if shares.has_room(holder):
            shares.take(holder)
            held[holder] += 1
        else:
            assert held[holder] >= shares.kept, "what is kept for it is there"
            with pytest.raises(HttpError, match="at most"):
                shares.take(holder)
        assert len(shares) == held.total() <= total
    for number in range(holders):
        holder = b"%d" % number
        while held[holder] < shares.kept:
            shares.take(holder)
            held[holder] += 1
    assert held.total() <= total


@pytest.mark.parametrize("reserved", [0.0, 0.5, 1.0])
def test_who_is_alone_may_have_all_of_it(reserved: float) -> None:
    shares = Shares("things", 10, 1, reserved)
    for _ in range(10):
        shares.take(b"")
    with pytest.raises(HttpError, match="at most 10 things"):
        shares.take(b"")


def watch_until_refused(http: RawHttp) -> tuple[int, dict[str, object]]:
    """How many watches there were room for, and what was said then."""
    for count in range(100):
        told = http.ask("POST", "/v0/watch", {"topics": {"t": {}}})
        if told.status != 200:
            assert told.status == 429
            detail: dict[str, object] = told.json["error"]["detail"]
            return count, detail
    raise AssertionError("nobody stopped it")


def test_one_key_cannot_take_the_watch_sessions_of_another(tmp_path: Path) -> None:
    chosen = settings(api_keys=KEYS, limits={"watch_sessions": 20}, session_ttl_ms=1_000)
    with running(tmp_path / "data", chosen) as server:
        with server.talk(key=GREEDY) as greedy, server.talk(key=OTHER) as other:
            greedy.write("t", 1)
            told = {"limit": "watch_sessions", "allowed": 15}
            assert watch_until_refused(greedy) == (15, told)
            assert watch_until_refused(other) == (5, told)
            sessions = server.app.sessions
            server.inside(lambda: sessions.expire(server.app.clock.monotonic_us() + 10_000_000))
            assert watch_until_refused(other)[0] == 15
        assert len(server.app.access.quotas.watches) == len(sessions) == 15


def test_without_keys_one_may_have_them_all_as_before(tmp_path: Path) -> None:
    chosen = settings(limits={"watch_sessions": 20})
    with running(tmp_path / "data", chosen) as server, server.talk() as http:
        http.write("t", 1)
        assert watch_until_refused(http)[0] == 20


def test_one_key_cannot_take_the_streams_of_another(tmp_path: Path) -> None:
    chosen = settings(api_keys=KEYS, limits={"streams": 4, "streams_per_key": 100})
    with running(tmp_path / "data", chosen) as server, ExitStack() as stack:
        open_ones = []
        for key, room in ((GREEDY, 3), (OTHER, 1)):
            with server.talk(key=key) as http:
                http.write("t", 1)
                wid = http.ask("POST", "/v0/watch", {"topics": {"t": {}}}).json["wid"]
            for _ in range(room):
                events = Events(stack.enter_context(server.talk(key=key)), wid)
                assert events.status == 200
                open_ones.append(events)
            with server.talk(key=key) as http:
                assert http.get(f"/v0/watch/{wid}").json["error"]["detail"]["limit"] == "streams"
        stack.close()
        eventually(lambda: not server.app.access.quotas.streams)


def test_who_signed_in_cannot_take_all_connections(tmp_path: Path) -> None:
    """Over RCPX and Kafka, where a client may stay as long as it likes."""
    chosen: dict[str, Any] = {
        "api_keys": KEYS,
        "kafka_users": ("ann:anns-password", "bob:bobs-password"),
        "limits": {"connections": 16},
        "rcpx_port": 0,
    }
    with running_broker(tmp_path / "data", **chosen) as server, ExitStack() as stack:
        assert server.app.rcpx is not None
        port = server.app.rcpx.port

        def greet(secret: str) -> str:
            client = stack.enter_context(wire(port))
            client.hello()
            told = client.ask("AUTH", {"token": secret})
            return "" if told["status"] == "ok" else str(told["error"]["code"])

        assert [greet(GREEDY) for _ in range(11)] == [""] * 10 + ["RATE_LIMITED"]
        for name, room in (("ann", 2), ("bob", 1)):
            for _ in range(room):
                speaker = stack.enter_context(RawKafka(server.kafka_port))
                message = plain(name, f"{name}s-password")
                assert sign_in(speaker, message)["error_code"] == 0
        with RawKafka(server.kafka_port) as speaker:
            told = sign_in(speaker, plain("ann", "anns-password"))
            assert told["error_code"] != 0
            assert "connections" in told["error_message"]
        assert greet(OTHER) == ""
        assert len(server.app.access.quotas.connections) == 14
        stack.close()
        eventually(lambda: not len(server.app.access.quotas.connections))


def test_a_second_sign_in_counts_once(tmp_path: Path) -> None:
    with running(tmp_path / "data", settings(api_keys=KEYS, rcpx_port=0)) as server:
        assert server.app.rcpx is not None
        with wire(server.app.rcpx.port) as client:
            client.hello()
            for secret in (GREEDY, GREEDY, OTHER):
                client.ok("AUTH", {"token": secret})
            assert len(server.app.access.quotas.connections) == 1
        eventually(lambda: not len(server.app.access.quotas.connections))
