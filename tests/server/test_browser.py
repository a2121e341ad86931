"""A real browser's EventSource and WebSocket: headless Chromium, driven over its debugging port."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

from tests.server.raw_http import RawHttp
from tests.server.running_server import RunningServer, eventually

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]

FOLLOW = """
new Promise((resolve, reject) => {
  const seen = [];
  const source = new EventSource("/v0/watch/" + WID);
  const finish = () => { source.close(); resolve(seen) };
  source.addEventListener("record", e => {
    const batch = JSON.parse(e.data);
    seen.push(...batch.records.map(r => r.data));
    if (seen.filter(Number.isInteger).length >= COUNT) finish();
  });
  source.onerror = () => { seen.push("error " + source.readyState) };
  setTimeout(finish, 20000);
})
"""


class Page:
    """One tab, spoken to in the debugging protocol."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._number = 0

    def call(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=40))
            if message.get("id") == self._number:
                assert "error" not in message, message
                return message["result"]

    def begin(self, script: str) -> int:
        """Start a script; its value is asked for later."""
        self._number += 1
        parameters = {"expression": script, "awaitPromise": True, "returnByValue": True}
        message = {"id": self._number, "method": "Runtime.evaluate", "params": parameters}
        self._socket.send(json.dumps(message))
        return self._number

    def value(self, number: int) -> Any:
        while True:
            message = json.loads(self._socket.recv(timeout=40))
            if message.get("id") == number:
                assert "exceptionDetails" not in message["result"], message
                return message["result"]["result"].get("value")

    def run(self, script: str) -> Any:
        return self.value(self.begin(script))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The debugging port of a browser."""
    profile: Path = tmp_path_factory.mktemp("chromium")
    assert CHROMIUM is not None
    process = subprocess.Popen(
        [
            CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--no-first-run", "--remote-debugging-port=0", f"--user-data-dir={profile}",
            "about:blank",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    told = profile / "DevToolsActivePort"
    try:
        eventually(lambda: told.exists() and "\n" in told.read_text())
        yield int(told.read_text().splitlines()[0])
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture
def page(browser: int, server: RunningServer) -> Iterator[Page]:
    """A tab that shows our own page."""
    request = urllib.request.Request(f"http://127.0.0.1:{browser}/json/new", method="PUT")
    with urllib.request.urlopen(request, timeout=20) as answer:
        address = json.load(answer)["webSocketDebuggerUrl"]
    with connect(address, max_size=2**24) as socket:
        found = Page(socket)
        found.call("Page.enable")
        found.call("Page.navigate", url=f"http://127.0.0.1:{server.port}/docs")
        eventually(
            lambda: found.run("document.readyState + location.port").endswith(
                f"complete{server.port}"
            )
        )
        yield found


def open_in(page: Page, topic: str, **options: Any) -> str:
    body = json.dumps({"topics": {topic: {}}, **options})
    wid: str = page.run(
        f"fetch('/v0/watch', {{method: 'POST', headers: {{'content-type': 'application/json'}}, "
        f"body: {json.dumps(body)}}}).then(r => r.json()).then(r => r.wid)"
    )
    return wid


def follow(wid: str, count: int) -> str:
    return FOLLOW.replace("WID", json.dumps(wid)).replace("COUNT", str(count))


def test_the_page_shows_every_route(page: Page) -> None:
    eventually(lambda: page.run("document.querySelectorAll('details').length") > 10)
    shown = page.run("document.body.innerText")
    assert "/v0/topics/{topic}/diff" in shown
    assert "Could not load" not in shown


def test_an_event_source_gets_everything_in_order(page: Page, http: RawHttp, topic: str) -> None:
    http.write(topic, *range(10))
    running = page.begin(follow(open_in(page, topic, limit=3), 20))
    for number in range(10, 20):
        http.write(topic, number)
    assert page.value(running) == list(range(20))


def test_an_event_source_comes_back_by_itself_and_misses_nothing(
    page: Page, server: RunningServer, http: RawHttp, topic: str
) -> None:
    http.put(topic)
    wid = open_in(page, topic)
    running = page.begin(follow(wid, 30))
    for number in range(10):
        http.write(topic, number)
    watch = server.app.sessions._by_id[wid]
    eventually(lambda: watch.sent.get(topic) == 10)
    for number in range(10, 20):
        http.write(topic, number)
    server.inside(server.app.delivery.streams.close_all)
    for number in range(20, 29):
        http.write(topic, number)
    eventually(lambda: watch.streams == 1)
    http.write(topic, 29)
    seen = page.value(running)
    assert [datum for datum in seen if isinstance(datum, int)] == list(range(30))
    assert "error 0" in seen, "it was cut off, and came back by itself"


def test_a_websocket_of_the_browser_publishes_and_subscribes(page: Page, topic: str) -> None:
    script = """
    new Promise(resolve => {
      const socket = new WebSocket("ws://" + location.host + "/v0/ws"), seen = [];
      socket.onopen = () => socket.send(JSON.stringify(
        {op: "publish", topic: TOPIC, records: [{data: "from a browser"}]}));
      socket.onmessage = e => {
        const said = JSON.parse(e.data); seen.push(said.op);
        if (said.op === "ack") socket.send(JSON.stringify({op: "subscribe", topic: TOPIC}));
        if (said.op === "caught_up") { socket.close(); resolve(seen) }
      };
      socket.onclose = e => resolve([...seen, e.code]);
    })""".replace("TOPIC", json.dumps(topic))
    assert page.run(script) == ["ack", "subscribed", "record", "caught_up"]


def test_a_page_of_another_site_cannot_use_a_server_without_keys(
    page: Page, server: RunningServer, topic: str
) -> None:
    page.call("Page.navigate", url="about:blank")
    script = f"""
    fetch("http://127.0.0.1:{server.port}/v0/topics/{topic}",
          {{method: "POST", mode: "no-cors", body: new Blob(['{{"records":[{{"data":1}}]}}'])}})
      .then(r => r.type, e => "refused")"""
    page.run(script)
    with server.talk() as http:
        assert http.get(f"/v0/topics/{topic}").status == 404
