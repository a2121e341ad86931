"""Every page of the dashboard shows what the server has, and what happens while it is open."""

from __future__ import annotations

import re
from pathlib import PurePath

import pytest
from playwright.sync_api import expect

from headwater.disk import PosixDisk
from headwater.engine.maintenance.reports import keep_report
from tests.kafka.broker import Broker
from tests.server.raw_http import RawHttp
from tests.web.dashboard_page import Dashboard

pytestmark = pytest.mark.e2e

PAGES = {
    "": "Busiest topics",
    "topics": "Durability",
    "topic/orders": "newest first",
    "queues": "In flight",
    "queue/jobs": "Dead letters",
    "routers": "orders-to-paid",
    "kafka": "High watermark",
    "machines": "Machine",
    "log": "Write-ahead log",
    "jobs": "Maintenance",
    "nothing/of/the/kind": "There is no such page",
}


@pytest.mark.parametrize("path", PAGES)
def test_a_page_opens_and_says_what_it_is_about(dashboard: Dashboard, path: str) -> None:
    dashboard.open(path)
    expect(dashboard.main()).to_contain_text(PAGES[path])
    expect(dashboard.page.locator(".notice[role=alert]")).to_be_hidden()


def test_nothing_is_asked_of_anybody_but_this_server(dashboard: Dashboard) -> None:
    dashboard.open()
    assert len(dashboard.asked) > 20
    assert {url for url in dashboard.asked if not url.startswith(dashboard.url)} <= {
        url for url in dashboard.asked if url.startswith(f"blob:{dashboard.url}")
    }


# -- topics


def test_topics_show_floors_and_sizes_and_move_while_one_looks(
    dashboard: Dashboard, http: RawHttp
) -> None:
    dashboard.open("topics?contains=click")
    row = dashboard.row("clicks")
    expect(row).to_contain_text("disk")
    expect(row.locator("td").nth(5)).to_have_text("50")
    expect(row.locator("td").nth(6)).to_have_text("31")
    expect(row).to_contain_text("20 records")
    http.write("clicks", *range(10))
    expect(row.locator("td").nth(5)).to_have_text("60")
    expect(row.locator("td").nth(6)).to_have_text("41")
    expect(row.locator("td").nth(2)).not_to_have_text("0/s")
    expect(dashboard.rows()).to_have_count(1)


def test_many_topics_are_searched_and_paged(dashboard: Dashboard) -> None:
    dashboard.open("topics")
    expect(dashboard.rows()).to_have_count(100)
    dashboard.page.get_by_role("button", name="Next").click()
    expect(dashboard.row("many-104")).to_be_visible()
    dashboard.page.get_by_role("button", name="Previous").click()
    expect(dashboard.row("clicks")).to_be_visible()
    dashboard.page.get_by_label("Search").fill("ny-00")
    expect(dashboard.rows()).to_have_count(10)
    expect(dashboard.page).to_have_url(re.compile("contains=ny-00"))
    dashboard.page.get_by_label("Search").fill("")
    dashboard.page.get_by_label("Type").select_option("queue")
    expect(dashboard.rows()).to_have_count(1)


# -- records


def test_records_are_paged_newest_first(dashboard: Dashboard) -> None:
    dashboard.open("topic/orders")
    first = dashboard.page.locator("tbody tr[data-seq]").first
    expect(first).to_have_attribute("data-seq", "130")
    dashboard.page.get_by_role("button", name="Older").click()
    expect(first).to_have_attribute("data-seq", "80")
    dashboard.page.get_by_role("button", name="Older").click()
    expect(first).to_have_attribute("data-seq", "30")
    expect(dashboard.page.get_by_role("button", name="Older")).to_be_disabled()
    dashboard.page.get_by_role("button", name="Newer").click()
    expect(first).to_have_attribute("data-seq", "80")
    dashboard.page.get_by_label("Go to").fill("42")
    dashboard.page.get_by_label("Go to").press("Enter")
    expect(first).to_have_attribute("data-seq", "42")
    first.get_by_role("button").click()
    expect(dashboard.page.locator("tr.whole")).to_contain_text('"source": "test"')


def test_records_are_filtered_by_tag_node_and_text(dashboard: Dashboard) -> None:
    dashboard.open("topic/orders")
    browser = dashboard.page.locator(".records tbody tr[data-seq]")
    dashboard.page.get_by_role("searchbox", name="Tag").fill("pa*")
    expect(browser).to_have_count(50)
    expect(browser.first).to_have_attribute("data-seq", "129")
    dashboard.page.get_by_role("searchbox", name="Node").fill("shop-1")
    expect(browser).to_have_count(22)
    dashboard.page.get_by_role("searchbox", name="Text").fill("URGENT")
    expect(browser).to_have_count(1)
    expect(browser).to_have_attribute("data-seq", "7")
    expect(dashboard.page.get_by_text("scanned")).to_be_visible()


def test_what_is_gone_is_shown_where_it_was(dashboard: Dashboard) -> None:
    dashboard.open("topic/gaps")
    rows = dashboard.page.locator(".records tbody tr")
    expect(rows).to_have_text(
        [
            re.compile("^Seq 6 was deleted"),
            re.compile("^5"),
            re.compile("^Seq 4 was deleted"),
            re.compile("^3"),
            re.compile("^Seq 2 was deleted"),
            re.compile("^1"),
        ]
    )
    dashboard.open("topic/clicks")
    last = dashboard.page.locator(".records tbody tr").last
    expect(last).to_contain_text(re.compile(r"^Tombstone: seqs up to \d+ are gone.*\(cap\)"))


def test_what_is_damaged_is_shown_where_it_is_and_not_as_deleted(
    dashboard: Dashboard, server: Broker
) -> None:
    with server.talk() as http:
        http.write("hurt", *range(1, 9))
        http.put("hurt.jobs", type="queue")
        http.write("hurt.jobs", 1)
    log = server.inside(lambda: server.app.backend.engine.topic("hurt").log)
    for first, last in ((3, 4), (6, 6), (8, 8)):
        server.inside(lambda first=first, last=last: log.note_damaged(first, last))
    dashboard.open("topic/hurt")
    rows = dashboard.page.locator(".records tbody tr")
    expect(rows).to_have_text(
        [
            re.compile(r"^Tombstone: seq 8 is missing, damaged on the server's disk \(damaged\)"),
            re.compile("^7"),
            re.compile("^Tombstone: seq 6 is missing"),
            re.compile("^5"),
            re.compile("^Tombstone: seqs 3 to 4 are missing"),
            re.compile("^2"),
            re.compile("^1"),
        ]
    )
    jobs = server.inside(lambda: server.app.backend.engine.topic("hurt.jobs").log)
    server.inside(lambda: jobs.note_damaged(1, 1))
    with server.talk() as http:
        http.queue("claim", "hurt.jobs")
    dashboard.open("queue/hurt.jobs")
    expect(dashboard.page.get_by_text("damaged, and the queue has no dead_letter")).to_be_visible()


def test_the_tail_shows_records_as_they_are_written(dashboard: Dashboard, http: RawHttp) -> None:
    http.put("tail")
    http.write("tail", "old")
    dashboard.open("topic/tail")
    live = dashboard.page.get_by_role("button", name="Live")
    live.click()
    expect(live).to_have_text("Live: following")
    first = dashboard.page.locator(".records tbody tr").first
    for text in ("new 1", "new 2"):
        http.write("tail", text)
        expect(first).to_contain_text(text)
    expect(dashboard.page.locator(".records tbody tr")).to_have_count(3)
    live.click()
    expect(live).to_have_attribute("aria-pressed", "false")


def test_rows_stay_under_the_pointer_while_the_tail_runs(
    dashboard: Dashboard, http: RawHttp
) -> None:
    http.put("steady")
    http.write("steady", "old")
    dashboard.open("topic/steady")
    live = dashboard.page.get_by_role("button", name="Live")
    live.click()
    expect(live).to_have_text("Live: following")
    rows = dashboard.page.locator(".records tbody tr[data-seq]")
    rows.first.hover()
    http.write("steady", 1, 2, 3)
    expect(live).to_have_text("Live: 3 new")
    expect(rows).to_have_count(1)
    live.hover()
    expect(rows).to_have_count(4)
    expect(rows.first).to_have_attribute("data-seq", "4")
    live.click()


def test_a_record_is_written_by_hand_and_mistakes_are_told(
    dashboard: Dashboard, http: RawHttp
) -> None:
    http.put("by-hand")
    dashboard.open("topic/by-hand")
    page = dashboard.page
    page.get_by_text("Write a record").click()
    page.get_by_label("Data").fill('{"large": 12345678901234567890}')
    page.get_by_label("Meta").fill("{not json")
    page.get_by_role("button", name="Write").click()
    expect(page.locator(".notice")).to_contain_text("The meta is not JSON")
    page.get_by_label("Meta").fill('{"a": 1}')
    page.get_by_label("Tag").first.fill("t")
    page.get_by_label("Data").press("Control+Enter")
    expect(page.get_by_text("Written as seq 1")).to_be_visible()
    expect(page.locator(".notice")).to_be_hidden()
    expect(page.locator(".records tbody")).to_contain_text("12345678901234567890")
    answer = http.diff("by-hand", include_tags=True)
    assert b'{"large":12345678901234567890}' in answer.body
    assert answer.json["records"][0]["$tag"] == "t"


# -- queues, routers, the log, jobs


def test_a_queue_is_paused_and_its_dead_letters_go_back(
    dashboard: Dashboard, http: RawHttp
) -> None:
    dashboard.open("queues")
    cells = dashboard.row("jobs").locator("td")
    expect(cells.nth(1)).to_have_text("0")
    expect(cells.nth(2)).to_have_text("2")
    expect(cells.nth(4)).to_have_text("3")
    dashboard.row("jobs").get_by_role("button", name="Pause").click()
    expect(dashboard.row("jobs")).to_contain_text("paused")
    assert http.get("/v0/topics/jobs").json["config"]["paused"] is True
    dashboard.row("jobs").get_by_role("button", name="Resume").click()
    expect(dashboard.row("jobs")).not_to_contain_text("paused")
    dashboard.row("jobs").get_by_role("link").first.click()
    letters = dashboard.page.locator(".records tbody tr[data-seq]")
    expect(letters).to_have_count(3)
    letters.last.get_by_role("button", name="Requeue seq 1 to jobs").click()
    expect(letters).to_have_count(2)
    expect(dashboard.page.locator(".tile").first).to_contain_text("1")
    dashboard.page.get_by_role("button", name="Requeue all shown").click()
    expect(letters).to_have_count(0)
    expect(dashboard.page.get_by_text("2 requeued")).to_be_visible()
    assert http.get("/v0/topics/jobs").json["queue"]["ready"] == 3
    assert http.get("/v0/topics/jobs-dead").json["count"] == 0


def test_routers_are_a_graph_whose_boxes_lead_to_topics(dashboard: Dashboard) -> None:
    dashboard.open("routers")
    graph = dashboard.page.locator(".graph svg")
    expect(graph.locator("a.topic")).to_have_count(4)
    expect(graph.locator("path.edge")).to_have_count(3)
    places = graph.locator("a.topic").evaluate_all(
        "boxes => Object.fromEntries(boxes.map(box => "
        "[box.querySelector('title').textContent, box.getBoundingClientRect().x]))"
    )
    assert places["orders"] < places["paid"] < places["ledger"] == places["mail"]
    expect(dashboard.row("orders-to-paid")).to_contain_text("at least once")
    graph.locator("a.topic", has_text="ledger").click()
    expect(dashboard.page).to_have_url(re.compile("#/topic/ledger"))


def test_a_circle_of_routers_can_be_drawn_too(dashboard: Dashboard) -> None:
    script = """async () => {
        const { layout } = await import("/ui/layout.js");
        const edges = [["a", "b"], ["b", "c"], ["c", "a"], ["c", "c"], ["d", "b"]];
        const long = Array.from({ length: 5000 }, (_, n) => ({ from: `n${n}`, to: `n${n + 1}` }));
        const { nodes } = layout(edges.map(([from, to]) => ({ from, to })));
        return [[...nodes.keys()].sort().join(""), layout(long).nodes.get("n5000").x > 1000000];
    }"""
    dashboard.open()
    assert dashboard.page.evaluate(script) == ["abcd", True]


def test_the_log_shows_its_shards_and_the_ladder(dashboard: Dashboard) -> None:
    dashboard.open("log")
    expect(dashboard.page.locator(".card", has_text="Shard")).to_have_count(2)
    expect(dashboard.page.locator(".card", has_text="Shard 0")).to_contain_text("writable")
    expect(dashboard.page.locator("ol.ladder li")).to_contain_text(
        ["coalesce", "widen", "defer", "refuse"]
    )
    expect(dashboard.page.get_by_role("meter")).to_have_count(5)


def test_last_runs_of_jobs_are_shown_with_their_findings(dashboard: Dashboard) -> None:
    dashboard.open("jobs")
    lake = dashboard.page.locator("section", has_text="pipeline lake")
    expect(lake).to_contain_text("problems")
    expect(lake).to_contain_text("120,000")
    expect(lake).to_contain_text("<b>three</b> rows are bad")
    dashboard.open()
    expect(dashboard.page.locator("ul.attention")).to_contain_text("pipeline-lake found problems")


def test_what_a_report_has_inside_is_shown_field_by_field(
    dashboard: Dashboard, server: Broker
) -> None:
    """As `verify` and `pipeline stats` have it; nobody reads JSON in a narrow column."""
    log = {"ok": True, "shards": 2, "files": [{"path": "wal-1.log", "frames": 7}], "findings": []}
    topic = {"topic": "orders", "sizes": {"p50": 13, "p99": 350}, "last_ts": 1794885261845}
    report = {"ok": True, "wal": log, "topics": [topic], "advice": [], "seen": True}
    keep_report(PosixDisk(), PurePath(server.directory), "stats", 1794885689421, report)
    dashboard.open("jobs")
    run = dashboard.page.locator("section", has=dashboard.page.get_by_text("stats", exact=True))
    expect(run.locator("dl")).to_contain_text("wal shards2advicenoneseenyes")
    files, topics = run.locator("details").all()
    expect(files).to_contain_text("wal files (1)")
    expect(files.locator("tbody td")).to_have_text(["wal-1.log", "7"])
    expect(topics.locator("th")).to_have_text(["topic", "sizes p50", "sizes p99", "last ts"])
    expect(topics.locator("tbody td")).to_have_text(["orders", "13", "350", re.compile("^2026-")])
    expect(run).not_to_contain_text("{")
