"""Limits an operator sets: over one, a clear refusal with nothing kept, and it ends by itself."""

from __future__ import annotations

from pathlib import Path

from headwater.config.engine import EngineSettings
from tests.server.running_server import eventually, running, settings


def test_a_smaller_limit_for_a_record_holds_for_http_and_batches(tmp_path: Path) -> None:
    with running(tmp_path, settings(limits={"record_bytes": 100})) as server, server.talk() as http:
        small, large = {"data": "x" * 90}, {"data": "x" * 120}
        assert http.write_records("a", small).status == 201
        refused = http.write_records("a", small, large)
        assert refused.status == 413
        assert refused.json["error"]["code"] == "record_too_large"
        assert "record 1 has 122 bytes; at most 100" in refused.json["error"]["message"]
        assert len(http.diff("a").json["records"]) == 1, "nothing of a refused write is kept"


def test_a_write_that_is_larger_than_the_room_left_is_refused_whole(tmp_path: Path) -> None:
    engine = EngineSettings(total_bytes_max=5_000)
    with running(tmp_path, settings(), engine_settings=engine) as server, server.talk() as http:
        refused = http.write_records("a", *[{"data": "x" * 998}] * 6)
        assert refused.status == 429
        assert refused.json["error"]["detail"]["limit"] == "total_bytes"
        assert http.write_records("a", *[{"data": "x" * 998}] * 5).status == 201, "5,000 of 5,000"
        assert http.write_records("a", {"data": 1}).status == 429


def test_a_limit_of_all_bytes_refuses_writes_until_room_is_made(tmp_path: Path) -> None:
    engine = EngineSettings(total_bytes_max=5_000, checkpoint_interval_ms=20)
    with running(tmp_path, settings(), engine_settings=engine) as server, server.talk() as http:
        answers = [http.write_records("a", {"data": "x" * 1_000, "tag": "old"}) for _ in range(10)]
        refused = [answer for answer in answers if answer.status == 429]
        assert len(answers) - len(refused) == 4, "4 x 1,005 bytes fit into 5,000, a fifth does not"
        error = refused[0].json["error"]
        assert error["detail"] == {"limit": "total_bytes", "allowed": 5_000}
        assert len(http.diff("a").json["records"]) == len(answers) - len(refused)
        assert http.ask("POST", "/v0/topics/a/delete", {"match": "old"}).status == 200
        eventually(lambda: http.write_records("a", {"data": 1}).status == 200)
