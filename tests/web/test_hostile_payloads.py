"""Whatever a payload says, it is shown as text: it runs nothing and makes no element."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.server.raw_http import RawHttp
from tests.web.dashboard_page import Dashboard

pytestmark = pytest.mark.e2e

CORPUS: tuple[str, ...] = (
    "<script>window.pwned = 1</script>",
    "<img src=x onerror='window.pwned = 1'>",
    "<svg onload=window.pwned=1><animate onbegin=window.pwned=1>",
    "</pre></td></table><iframe srcdoc='<script>parent.pwned=1</script>'></iframe>",
    "<a href='javascript:window.pwned=1'>press</a>",
    "javascript:window.pwned=1",
    "\" autofocus onfocus=window.pwned=1 x=\"",
    "' style='position:fixed;inset:0' '",
    "{{constructor.constructor('window.pwned=1')()}} ${window.pwned=1}",
    "<style>main { display: none }</style><link rel=stylesheet href=//example.org/x.css>",
    "<base href='//example.org/'><meta http-equiv=refresh content='0;url=//example.org'>",
    "&lt;b&gt; &amp;amp; &#x3c;script&#x3e;",
    "=cmd|' /C calc'!A0",
    "\x1b[31mred\x1b[0m \x07 \x08 \x00 \x7f",
    "\u202etxt.exe\u202c \u2066\u2069 \u200b\ufeff",
    "line one\nline two\r\nevent: error\ndata: {}\n\n",
    "A" * 20_000,
    "\U0001f600 \u0430dmin \u1e9e",
)  # fmt: skip
SHAPES: tuple[Any, ...] = (
    {"__proto__": {"polluted": 1}, "constructor": {"prototype": {"polluted": 1}}},
    {"<script>": "<b>", "toString": 1, "length": -1},
    json.loads("[" * 60 + "]" * 60),
    [0.1 + 0.2, -0.0, 1e308, 12345678901234567890],
    None,
    "",
    {"then": "I am no promise", "toJSON": "nor a date"},
)
FOUND = """() => ({
    pwned: window.pwned,
    polluted: ({}).polluted,
    made: document.querySelectorAll(
        "main script, main iframe, main img:not(.drawing), main style, main link, base,"
        + "meta[http-equiv], main svg:not(.spark):not([role=img]), main [onerror], main [onload],"
        + "main [autofocus], a[href^='javascript:'], object, embed"
    ).length,
    hidden: getComputedStyle(document.querySelector("main")).display === "none",
})"""
CLEAN = {"pwned": None, "polluted": None, "made": 0, "hidden": False}


def clip(text: str) -> str:
    return text[:200]


@pytest.fixture(scope="module")
def topic(shared: Dashboard) -> str:
    """Hostile words wherever a record has room for words."""
    return "hostile"


def record(payload: Any) -> dict[str, Any]:
    text = payload if isinstance(payload, str) else json.dumps(payload)
    return {
        "data": payload,
        "tag": clip(text).replace("\x00", " ")[:60] or "empty",
        "node": clip(text).replace("\x00", " ")[:30] or "empty",
        "meta": {clip(text)[:50] or "key": payload if len(text) < 10_000 else "long"},
    }


def test_hostile_payloads_are_shown_as_the_text_they_are(
    dashboard: Dashboard, http: RawHttp, topic: str
) -> None:
    payloads = [*CORPUS, *SHAPES]
    http.put(topic)
    answer = http.write_records(topic, *map(record, payloads))
    assert answer.status == 200, answer.body
    dashboard.open(f"topic/{topic}")
    rows = dashboard.page.locator(".records tbody tr[data-seq]")
    expect(rows).to_have_count(len(payloads))
    for opener in rows.get_by_role("button").all():
        opener.click()
    expect(dashboard.page.locator("tr.whole")).to_have_count(len(payloads))
    shown = dashboard.page.locator("tr.whole pre:first-child").evaluate_all(
        "found => found.map(each => each.textContent)"
    )
    for payload, text in zip(reversed(payloads), shown, strict=True):
        assert json.loads(text) == payload
    expect(dashboard.page.locator(".records tbody")).to_contain_text("12345678901234567890")
    assert dashboard.page.evaluate(FOUND) == CLEAN
    assert dashboard.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_hostile_payloads_in_the_tail_are_text_too(
    dashboard: Dashboard, http: RawHttp, topic: str
) -> None:
    http.put(f"{topic}-tail")
    dashboard.open(f"topic/{topic}-tail")
    live = dashboard.page.get_by_role("button", name="Live")
    live.click()
    expect(live).to_have_text("Live: following")
    for payload in CORPUS:
        http.write_records(f"{topic}-tail", record(payload))
    expect(dashboard.page.locator(".records tbody tr[data-seq]")).to_have_count(len(CORPUS))
    assert dashboard.page.evaluate(FOUND) == CLEAN
    live.click()


def test_hostile_words_in_settings_filters_and_addresses_stay_words(
    dashboard: Dashboard, http: RawHttp
) -> None:
    script = CORPUS[0]
    http.put("hostile-source")
    http.ask(
        "PUT",
        "/v0/routers/hostile",
        {"source": "hostile-source", "dest": "hostile-dest", "filter": script},
    )
    for path in (
        "routers?contains=hostile",
        "topics?contains=%3Cscript%3E",
        "topic/%3Cimg%20src%3Dx%20onerror%3D%22window.pwned%3D1%22%3E",
        "instance/%22%3E%3Cscript%3Ewindow.pwned=1%3C%2Fscript%3E",
        "machine/..%2F..%2Fv0%2Fjobs/1",
        "%E0%A4%A",
    ):
        dashboard.open(path)
        dashboard.page.wait_for_function(
            "!document.querySelector('main').innerText.includes('Loading')"
        )
        assert dashboard.page.evaluate(FOUND) == CLEAN, path
    dashboard.open("routers?contains=hostile")
    expect(dashboard.page.locator(".graph svg")).to_contain_text(script)
    http.ask("DELETE", "/v0/routers/hostile")


def test_the_policy_stops_markup_that_got_into_the_page_after_all(dashboard: Dashboard) -> None:
    """The second line of defence, tried by putting markup there on purpose."""
    dashboard.open("jobs")
    dashboard.page.evaluate(
        """async () => {
            const box = document.createElement("div");
            document.querySelector("main").append(box);
            box.innerHTML = "<img src=/ui/none.svg onerror='window.pwned = 1'>";
            const script = document.createElement("script");
            script.textContent = "window.pwned = 2";
            box.append(script);
            await new Promise(done => setTimeout(done, 200));
        }"""
    )
    assert dashboard.page.evaluate("window.pwned") is None
    refused = [error for error in dashboard.errors if "Content Security Policy" in error]
    assert len(refused) == 2
    dashboard.errors.clear()
    dashboard.page.reload()
