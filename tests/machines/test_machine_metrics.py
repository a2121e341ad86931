"""The machines' log in the metrics."""

from __future__ import annotations

import pytest

from tests.machines.test_machine_http import apply, create, put
from tests.server.raw_http import RawHttp


@pytest.mark.claims(111)
def test_the_machines_log_is_in_the_metrics_by_names_with_wal(http: RawHttp, name: str) -> None:
    def metrics() -> dict[str, float]:
        found: dict[str, float] = http.get("/metrics", accept="application/json").json["metrics"]
        return found

    before = metrics()
    put(http, name)
    create(http, name, name, initial_ctx={"amount": 1})
    apply(http, name, "PAY")
    after = metrics()
    assert after["headwater_machine_wal_entries"] == before["headwater_machine_wal_entries"] + 3
    assert after["headwater_machine_instances"] == before["headwater_machine_instances"] + 1
    assert after["headwater_machine_wal_fsyncs"] > before["headwater_machine_wal_fsyncs"]
    text = http.get("/metrics").body.decode()
    assert any(line.startswith("headwater_machine_wal_bytes ") for line in text.splitlines())
