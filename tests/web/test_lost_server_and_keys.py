"""A server that goes away, and one that needs a key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Route, expect

from headwater.config.server import ServerSettings
from tests.server.running_server import RunningServer, running, settings
from tests.web.dashboard_page import Dashboard

pytestmark = pytest.mark.e2e

ADMIN, READER = "admin-secret", "reader-secret"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    chosen = settings(api_keys=(ADMIN, f"{READER}:read"), deadlines={"drain_s": 1.0})
    with running(tmp_path_factory.mktemp("guarded") / "data", chosen) as found:
        with found.talk(key=ADMIN) as http:
            http.write("secrets", "one")
        yield found


@pytest.fixture
def visitor(browser: Browser, guarded: RunningServer) -> Iterator[Dashboard]:
    found = Dashboard(browser, guarded.port)
    yield found
    found.close()
    assert not found.errors


def give_key(visitor: Dashboard, key: str) -> None:
    dialog = visitor.page.get_by_role("dialog")
    dialog.get_by_label("Key").fill(key)
    dialog.get_by_role("button", name="Use this key").click()


def test_a_key_is_asked_for_and_kept_in_the_tab_only(visitor: Dashboard) -> None:
    visitor.open("topics")
    dialog = visitor.page.get_by_role("dialog")
    expect(dialog).to_contain_text("needs a key")
    give_key(visitor, "not-the-right-one")
    expect(dialog).to_contain_text("does not know the key")
    give_key(visitor, ADMIN)
    expect(visitor.row("secrets")).to_be_visible()
    expect(dialog).to_have_count(0)
    visitor.page.reload()
    expect(visitor.row("secrets")).to_be_visible()
    stored = visitor.page.evaluate("JSON.stringify([{...localStorage}, document.cookie])")
    assert ADMIN not in stored
    assert not any(ADMIN in url for url in visitor.asked)
    other = visitor.context.new_page()
    other.goto(visitor.url)
    expect(other.get_by_role("dialog")).to_contain_text("needs a key")


def test_a_late_answer_to_a_request_without_a_key_asks_for_none(visitor: Dashboard) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        if held or "authorization" in route.request.headers:
            route.continue_()
        else:
            held.append(route)

    visitor.page.route("**/v0/**", hold)
    visitor.open("topic/secrets")
    give_key(visitor, READER)
    expect(visitor.page.get_by_role("dialog")).to_have_count(0)
    with visitor.page.expect_response(lambda response: response.status == 401):
        held[0].continue_()
    expect(visitor.page.locator(".records tbody")).to_contain_text("one")
    visitor.page.get_by_role("button", name="Live").click()
    expect(visitor.page.get_by_role("dialog")).to_have_count(0)


def test_whoever_has_no_key_is_told_and_sees_nothing(visitor: Dashboard) -> None:
    visitor.open("topics")
    visitor.page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(visitor.page.locator(".notice[role=alert]")).to_contain_text("A key is needed")
    expect(visitor.main()).not_to_contain_text("secrets")


def test_a_key_that_may_only_read_sees_what_it_may(
    visitor: Dashboard, guarded: RunningServer
) -> None:
    visitor.open("topic/secrets")
    give_key(visitor, READER)
    expect(visitor.page.locator(".records tbody")).to_contain_text("one")
    live = visitor.page.get_by_role("button", name="Live")
    live.click()
    expect(live).to_have_text("Live: following")
    with guarded.talk(key=ADMIN) as http:
        http.write("secrets", "two")
    expect(visitor.page.locator(".records tbody tr").first).to_contain_text("two")
    visitor.page.get_by_text("Write a record").click()
    visitor.page.get_by_label("Data").fill("1")
    visitor.page.get_by_role("button", name="Write").click()
    expect(visitor.page.locator(".notice[role=alert]")).to_contain_text("this key may not write")
    visitor.open("jobs")
    expect(visitor.page.locator(".notice[role=alert]")).to_contain_text(
        "this key may not do what is about the whole"
    )


def test_a_lost_server_is_told_and_found_again_by_itself(browser: Browser, tmp_path: Path) -> None:
    chosen = settings(deadlines={"drain_s": 0.2})
    with running(tmp_path / "data", chosen) as first:
        port = first.port
        with first.talk() as http:
            http.write("river", "before")
        dashboard = Dashboard(browser, port)
        dashboard.open("topic/river")
        live = dashboard.page.get_by_role("button", name="Live")
        live.click()
        expect(live).to_have_text("Live: following")
        with first.talk() as http:
            http.write("river", "seen live")
        expect(dashboard.page.locator(".records tbody tr").first).to_contain_text("seen live")
    banner = dashboard.page.get_by_role("alert").filter(has_text="Trying again in")
    expect(banner).to_contain_text("The server does not answer.")
    expect(dashboard.page.locator("#pulse")).to_have_text("unhealthy")
    expect(live).to_have_text("Live: waiting")
    expect(dashboard.page.locator(".records tbody")).to_contain_text("before")
    again = ServerSettings(port=port, deadlines=chosen.deadlines)
    with running(tmp_path / "data", again) as second:
        expect(banner).to_have_count(0)
        expect(live).to_have_text("Live: following")
        with second.talk() as http:
            http.write("river", "after")
        expect(dashboard.page.locator(".records tbody tr").first).to_contain_text("after")
        expect(dashboard.page.locator(".records tbody tr[data-seq]")).to_have_count(3)
        expect(dashboard.page.locator("#pulse")).to_have_text("healthy")
        dashboard.close()
    assert not [error for error in dashboard.errors if "ERR_" not in error]
