"""One browser and one server for the tests of a file.

No longer than that: Playwright keeps an event loop in the thread of the tests, in which nobody
else could run one, and a server in this process sets the interpreter's switch interval.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

import pytest
from playwright.sync_api import Browser

from headwater.core.clock import SystemClock
from headwater.disk import PosixDisk
from headwater.engine.maintenance.reports import keep_report
from tests.kafka.broker import Broker, running_broker
from tests.server.raw_http import RawHttp
from tests.web.dashboard_page import CHROMIUM, Dashboard, browsing


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    with browsing() as found:
        yield found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A server with something of everything in it."""
    with running_broker(tmp_path_factory.mktemp("web") / "data") as found:
        with found.talk() as http:
            fill(http)
        disk, directory = PosixDisk(), PurePath(found.directory)
        now = SystemClock().wall_ms()
        keep_report(disk, directory, "doctor", now - 60_000, {"ok": True, "checks": []})
        findings = [{"kind": "schema", "meaning": "<b>three</b> rows are bad"}]
        report = {"ok": False, "rows": 120_000, "findings": findings}
        keep_report(disk, directory, "pipeline-lake", now - 5_000, report)
        yield found


def fill(http: RawHttp) -> None:
    http.put("orders")
    http.write_records(
        "orders",
        *(
            {
                "data": {"order": number, "note": "urgent" if number == 7 else "plain"},
                "tag": "paid" if number % 2 else "open",
                "node": f"shop-{number % 3}",
                "meta": {"source": "test"},
            }
            for number in range(1, 131)
        ),
    )
    http.put("clicks", cap_records=20, durability="disk")
    http.write("clicks", *range(50))
    http.put("gaps")
    http.write_records("gaps", *({"data": n, "tag": "odd" if n % 2 else "even"} for n in range(6)))
    http.ask("POST", "/v0/topics/gaps/delete", {"match": "odd"})
    for router, source, dest in (
        ("orders-to-paid", "orders", "paid"),
        ("paid-to-ledger", "paid", "ledger"),
        ("paid-to-mail", "paid", "mail"),
    ):
        http.ask("PUT", f"/v0/routers/{router}", {"source": source, "dest": dest, "filter": None})
    http.put("jobs", type="queue", max_deliveries=1, dead_letter="jobs-dead")
    http.write("jobs", *(f"job {number}" for number in range(5)))
    http.queue("nack", "jobs", seqs=[j["$seq"] for j in claimed(http, 3)])
    claimed(http, 2)
    for number in range(105):
        http.put(f"many-{number:03d}", durability="memory")


def claimed(http: RawHttp, count: int) -> list[dict[str, int]]:
    found: list[dict[str, int]] = http.queue("claim", "jobs", max=count).json["claimed"]
    return found


@pytest.fixture
def http(server: Broker) -> Iterator[RawHttp]:
    with server.talk() as connection:
        yield connection


@pytest.fixture(scope="module")
def shared(browser: Browser, server: Broker) -> Iterator[Dashboard]:
    found = Dashboard(browser, server.port)
    yield found
    found.close()


@pytest.fixture
def dashboard(shared: Dashboard) -> Iterator[Dashboard]:
    """The shared tab; whatever goes wrong in it fails the test that made it."""
    yield shared
    told, shared.errors[:] = list(shared.errors), []
    assert not told
