"""Looking at the dashboard with a real browser: headless Chromium, driven by Playwright."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, expect, sync_playwright

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
PATIENCE_MS = 20_000
DESK = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}

HURRY = "import('/ui/live.js').then(live => { live.pace.factor = 0.2 })"
"""Pages look five times as often as they do for people."""

expect.set_options(timeout=PATIENCE_MS)


@contextmanager
def browsing(*arguments: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", *arguments]
        )
        try:
            yield browser
        finally:
            browser.close()


class Dashboard:
    """One tab that shows one server, and everything that went wrong in it."""

    def __init__(self, browser: Browser, port: int, **options: Any) -> None:
        self.context = browser.new_context(**{"viewport": DESK, **options})
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.url = f"http://127.0.0.1:{port}/"
        self.errors: list[str] = []
        self.asked: set[str] = set()
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._heard)
        self.page.on("dialog", lambda dialog: self.errors.append(f"dialog {dialog.message}"))
        self.page.on("request", lambda request: self.asked.add(request.url))

    def _heard(self, message: ConsoleMessage) -> None:
        # An answer that is no success is told on the console whatever the page makes of it.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.errors.append(message.text)

    def open(self, path: str = "") -> None:
        """Show a page of the dashboard; the tab is only loaded once."""
        if self.page.url.startswith(self.url):
            self.page.evaluate("hash => { location.hash = hash }", f"#/{path}")
        else:
            self.page.add_init_script(HURRY)
            self.page.goto(f"{self.url}#/{path}")

    def main(self) -> Locator:
        return self.page.locator("main")

    def row(self, text: str) -> Locator:
        """The row of a table whose first cell has this text."""
        first = self.page.locator("td:first-child").filter(
            has_text=re.compile(f"^{re.escape(text)}")
        )
        return self.page.locator("main tbody tr").filter(has=first)

    def rows(self) -> Locator:
        return self.page.locator("main tbody tr")

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def close(self) -> None:
        self.context.close()
