"""The dashboard without a mouse, on a phone, in the dark."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.server.running_server import RunningServer
from tests.web.dashboard_page import PHONE, Dashboard
from tests.web.test_pages import PAGES

pytestmark = pytest.mark.e2e


@pytest.fixture
def phone(browser: Browser, server: RunningServer) -> Iterator[Dashboard]:
    found = Dashboard(browser, server.port, viewport=PHONE, color_scheme="dark", has_touch=True)
    yield found
    found.close()
    assert not found.errors


def test_no_page_is_wider_than_a_phone(phone: Dashboard) -> None:
    for path, text in PAGES.items():
        phone.open(path)
        expect(phone.main()).to_contain_text(text)
        assert phone.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        assert phone.page.evaluate("document.querySelector('main').clientWidth") == PHONE["width"]


def test_a_phone_shows_what_a_record_says_without_scrolling_sideways(phone: Dashboard) -> None:
    phone.open("topic/orders")
    data = phone.page.locator(".records tr[data-seq] td.data").first
    expect(data).to_contain_text('{"order":130')
    box = data.bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= PHONE["width"]
    assert box["width"] > PHONE["width"] * 0.8
    phone.page.locator(".records tr[data-seq] [aria-expanded]").first.click()
    whole = phone.page.locator(".records tr.whole pre").first
    expect(whole).to_contain_text('"note"')
    assert phone.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_everything_is_reached_with_keys(dashboard: Dashboard) -> None:
    page = dashboard.page
    dashboard.open()
    page.reload()
    expect(dashboard.main()).to_contain_text("Busiest topics")
    dashboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    dashboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    dashboard.press("g", "t")
    expect(page).to_have_url(re.compile("#/topics"))
    expect(page.locator("nav a[aria-current]")).to_have_text("Topics")
    dashboard.press("/")
    expect(page.get_by_label("Search")).to_be_focused()
    page.keyboard.type("orders")
    expect(dashboard.rows()).to_have_count(1)
    dashboard.press("Escape")
    expect(page.get_by_label("Search")).not_to_be_focused()
    dashboard.press("j")
    expect(dashboard.row("orders").get_by_role("link")).to_be_focused()
    dashboard.press("Enter")
    expect(page).to_have_url(re.compile("#/topic/orders"))
    first = page.locator("tbody tr[data-seq]").first
    expect(first).to_have_attribute("data-seq", "130")
    dashboard.press("n")
    expect(first).to_have_attribute("data-seq", "80")
    dashboard.press("p")
    expect(first).to_have_attribute("data-seq", "130")
    dashboard.press("w")
    expect(page.get_by_label("Data")).to_be_focused()


def test_the_focus_stays_where_it_is_while_numbers_change(
    dashboard: Dashboard, server: RunningServer
) -> None:
    dashboard.open("topics?contains=many-00")
    link = dashboard.row("many-004").get_by_role("link")
    link.focus()
    with server.talk() as http:
        http.write("many-004", 1)
    expect(dashboard.row("many-004").locator("td").nth(3)).to_have_text("1")
    expect(link).to_be_focused()


def test_the_help_lists_the_keys_and_closes(dashboard: Dashboard) -> None:
    dashboard.open()
    dashboard.press("?")
    expect(dashboard.page.get_by_role("dialog")).to_contain_text("Next row, row before")
    dashboard.press("Escape")
    expect(dashboard.page.get_by_role("dialog")).to_have_count(0)


def test_colours_follow_the_system_until_somebody_chooses(phone: Dashboard) -> None:
    page = phone.page
    phone.open()

    def paper() -> str:
        found: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return found

    dark = paper()
    page.emulate_media(color_scheme="light")
    light = paper()
    assert dark != light
    page.get_by_role("button", name="Auto").click()
    page.get_by_role("button", name="Light").click()
    expect(page.get_by_role("button", name="Dark")).to_be_visible()
    assert paper() == dark
    page.reload()
    assert paper() == dark


def test_text_is_strong_enough_to_read_in_both_colours(phone: Dashboard) -> None:
    """Contrast of at least 4.5 to 1 for words, measured from what the browser computes."""
    script = """() => {
        const canvas = document.createElement("canvas").getContext("2d");
        const light = (colour) => {
            canvas.fillStyle = colour;
            canvas.fillRect(0, 0, 1, 1);
            const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map(part => {
                part /= 255;
                return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
            });
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const probe = document.createElement("div");
        document.body.append(probe);
        const colour = (name) => {
            probe.style.color = `var(--${name})`;
            return getComputedStyle(probe).color;
        };
        const weak = [];
        for (const words of ["ink", "muted", "water", "good", "warn", "bad"])
            for (const ground of ["paper", "surface", "raised"]) {
                const [one, other] = [light(colour(words)), light(colour(ground))].sort();
                const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
                if (contrast < 4.5) weak.push(`${words} on ${ground}: ${contrast.toFixed(2)}`);
            }
        probe.remove();
        return weak;
    }"""
    phone.open()
    assert phone.page.evaluate(script) == []
    phone.page.emulate_media(color_scheme="light")
    assert phone.page.evaluate(script) == []
