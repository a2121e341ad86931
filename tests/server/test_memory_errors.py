"""Memory that runs out in a request: the client is answered, and the log has one line of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater.core.errors import InvariantError, OverloadedError
from headwater.engine.topics import appender
from headwater.observe.logs import Logger
from headwater.server.failures import unforeseen
from tests.rig.captured_logs import captured_logs
from tests.server.running_server import running, settings


def no_memory(*_: Any, **__: Any) -> Any:
    raise MemoryError


def test_a_write_without_memory_is_refused_for_now_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with captured_logs() as lines, running(tmp_path, settings()) as server, server.talk() as http:
        assert http.write("a", 1).status == 201
        with monkeypatch.context() as patch:
            patch.setattr(appender, "encode_batches", no_memory)
            for body in ({"data": 2}, {"data": 2, "tag": "t", "meta": {"m": 1}}):
                refused = http.write_records("a", body)
                assert (refused.status, refused.code) == (429, "throttled")
                assert refused.json["error"]["detail"] == {"limit": "memory"}
        assert http.write("a", 3).json["first_seq"] == 2, "its seq was given back"
        assert [record["data"] for record in http.diff("a").json["records"]] == [1, 3]
    told = [line for line in lines if line["level"] == "error"]
    assert [line["error"] for line in told] == ["out of memory"] * 2
    assert not any("exc_info" in line for line in told), "one line each, no traceback"


def test_any_other_mistake_is_logged_with_where_it_happened() -> None:
    with captured_logs() as lines:
        log = Logger("test")
        mistake = unforeseen(log, "it failed", ZeroDivisionError("by zero"), request_id="7")
        for_now = unforeseen(log, "it failed", MemoryError(), request_id="8")
    assert isinstance(mistake, InvariantError)
    assert isinstance(for_now, OverloadedError)
    assert [("exc_info" in line, line["request_id"]) for line in lines] == [
        (True, "7"),
        (False, "8"),
    ]
