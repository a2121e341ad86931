"""GET /v0/trace: the long waits of a running server, and that its parts note them."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from headwater.observe.waits import MEANING_OF, WaitCause
from headwater.wire.status_answers import TraceAnswer
from tests.server.raw_http import RawHttp
from tests.server.running_server import SMALL_ENGINE, RunningServer, running

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One that takes everything for a long wait."""
    directory = tmp_path_factory.mktemp("trace")
    with running(directory, engine_settings=replace(SMALL_ENGINE, wait_us_min=1)) as server:
        yield server


@pytest.fixture
def http(server: RunningServer) -> Iterator[RawHttp]:
    with server.talk() as http:
        yield http


def trace(http: RawHttp, after: int = 0) -> TraceAnswer:
    answer = http.get(f"/v0/trace?after={after}")
    assert answer.status == 200
    return msgspec.json.decode(answer.body, type=TraceAnswer)


def details(found: TraceAnswer, cause: WaitCause) -> str:
    return "\n".join(each.detail for each in found.waits if each.cause == cause.value)


def test_the_loop_notes_requests_answers_of_the_log_and_what_maintenance_asks_of_it(
    server: RunningServer, http: RawHttp
) -> None:
    for number in range(3):  # from the second on a connection is read together with others
        http.write("traced", number)
    server.app.backend.engine.checkpoint()
    found = trace(http)
    on_loop = {WaitCause.LOOP, WaitCause.INTERPRETER, WaitCause.PROCESSOR}
    seen = "\n".join(details(found, cause) for cause in on_loop)
    for name in ("requests", "answers of the log", "Checkpointer.run", "Snapshotter.write"):
        assert f"{name}, computed" in seen, seen
    assert details(found, WaitCause.SYNC)
    assert details(found, WaitCause.NEW_FILE)


def test_work_beside_a_wait_is_named(server: RunningServer, http: RawHttp) -> None:
    http.write("traced", 1)
    server.app.backend.engine.checkpoint()
    beside = {
        name
        for each in trace(http).waits
        if each.detail.startswith("Checkpointer.run")
        for name in each.beside
    }
    assert "checkpoint" in beside


def test_collections_of_garbage_are_noted_while_the_server_serves(http: RawHttp) -> None:
    gc.collect()
    assert "generation 2, " in details(trace(http), WaitCause.GARBAGE)


def test_all_causes_are_counted_and_a_reader_gets_what_came_since(http: RawHttp) -> None:
    first = trace(http)
    assert {each.cause: each.meaning for each in first.causes} == {
        cause.value: meaning for cause, meaning in MEANING_OF.items()
    }
    assert first.wait_us_min == 1
    last = max(each.number for each in first.waits)
    http.write("traced", 2)
    second = trace(http, last)
    assert second.waits
    assert all(each.number > last for each in second.waits)
    assert [each.number for each in second.waits] == sorted(each.number for each in second.waits)
    assert sum(each.count for each in second.causes) >= second.waits[-1].number


@pytest.mark.parametrize("given", ["x", "1.5"])
def test_a_number_that_is_none_is_refused(http: RawHttp, given: str) -> None:
    assert http.get(f"/v0/trace?after={given}").status == 400


def test_the_metrics_count_the_waits_of_every_cause_and_how_long_they_were(http: RawHttp) -> None:
    http.write("traced", 3)
    metrics = http.get("/metrics", accept="application/json").json["metrics"]
    for cause in WaitCause:
        count = metrics[f"headwater_long_waits{{cause={cause.value}}}"]
        buckets, total_s = metrics[f"headwater_long_wait_seconds{{cause={cause.value}}}"]
        assert buckets[-1] == ["+Inf", count]
        assert (total_s > 0) == (count > 0)
    assert metrics["headwater_long_waits{cause=sync}"] > 0


def test_the_page_for_operators_explains_every_cause_and_no_other() -> None:
    section = OPERATIONS.read_text(encoding="utf-8").partition("## Why was this write slow?")[2]
    rows = re.findall(r"^\| `(\w+)` \|", section.partition("\n## ")[0], re.MULTILINE)
    assert rows == [cause.value for cause in WaitCause]
