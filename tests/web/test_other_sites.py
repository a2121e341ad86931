"""Pages of other sites, in a real browser beside a server without keys, try every route by every
means a page has. Nothing changes, and nothing can be read."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Response

from headwater.server.http.openapi import openapi_document
from headwater.server.routes import every_route
from tests.machines.conftest import ORDER
from tests.server.raw_http import RawHttp
from tests.server.running_server import RunningServer, running, settings
from tests.web.dashboard_page import CHROMIUM, browsing

REBOUND = "rebound.example"
FORBIDDEN, NOT_ALLOWED = 403, 405

ATTACK = """async ([base, routes, patience]) => {
  const heard = [];
  const within = (promise) => Promise.race([
    promise, new Promise(resolve => setTimeout(resolve, patience)),
  ]);
  const read = async (what, asked) => {
    try {
      const answer = await asked;
      if (answer.type === 'opaque' || answer.type === 'opaqueredirect') return;
      heard.push(`${what}: ${answer.status} ${(await answer.text()).slice(0, 200)}`);
    } catch { }
  };
  const element = (name, url) => within(new Promise(resolve => {
    const made = document.createElement(name);
    made.onload = made.onerror = made.onloadeddata = resolve;
    if (name === 'link') { made.rel = 'stylesheet'; made.href = url; } else made.src = url;
    if (name === 'object') made.data = url;
    document.body.append(made);
  }));
  const form = (method, enctype, url, text) => within(new Promise(resolve => {
    const frame = document.createElement('iframe');
    frame.name = 'frame' + Math.random();
    const made = document.createElement('form');
    Object.assign(made, { method, enctype, action: url, target: frame.name });
    if (text !== undefined) {
      const [name, value] = [text.slice(0, -1), text.slice(-1)];
      const field = document.createElement('input');
      Object.assign(field, { type: 'hidden', name: name.slice(0, -1), value });
      made.append(field);
    }
    document.body.append(frame, made);
    frame.onload = resolve;
    made.submit();
  }));
  const stream = (url) => within(new Promise(resolve => {
    const source = new EventSource(url);
    source.onopen = () => { heard.push('EventSource ' + url); source.close(); resolve(); };
    source.onerror = () => { source.close(); resolve(); };
  }));
  for (const [method, path, body] of routes) {
    const url = base + path;
    const text = body === null ? undefined : JSON.stringify(body);
    if (method === 'GET') {
      await Promise.all(['img', 'script', 'link', 'iframe', 'audio'].map(e => element(e, url)));
      await Promise.all([
        form('get', 'application/x-www-form-urlencoded', url),
        read('no-cors ' + url, fetch(url, { mode: 'no-cors' })),
        read('no-cors ' + url, fetch(url, {
          mode: 'no-cors', referrerPolicy: 'no-referrer', headers: { accept: 'text/event-stream' },
        })),
        read('cors ' + url, fetch(url)),
        read('cors ' + url, fetch(url, { credentials: 'include', headers: { 'x-a': '1' } })),
        stream(url),
      ]);
      continue;
    }
    if (method === 'POST') {
      navigator.sendBeacon(url, text);
      await Promise.all([
        form('post', 'text/plain', url, text),
        ...['text/plain', 'application/x-www-form-urlencoded'].map(kind =>
          read('no-cors ' + url, fetch(url, {
            method, body: text, mode: 'no-cors', headers: { 'content-type': kind },
          }))),
      ]);
    }
    for (const kind of ['application/json', 'text/plain'])
      await read(`cors ${method} ${url}`, fetch(url, {
        method, body: text, headers: { 'content-type': kind },
      }));
  }
  await within(new Promise(resolve => {
    const socket = new WebSocket(base.replace('http', 'ws') + '/v0/ws');
    socket.onopen = () => {
      heard.push('WebSocket');
      socket.send(JSON.stringify({ op: 'publish', topic: 'stolen', records: [{ data: 1 }] }));
    };
    socket.onmessage = resolve;
    socket.onclose = resolve;
  }));
  return heard;
}"""

BODIES: dict[str, Any] = {
    "/v0/topics/{topic}": {"records": [{"data": "stolen"}]},
    "/v0/topics/{topic}/delete": {"before_seq": 100},
    "/v0/topics/{topic}/claim": {"node": "thief", "max": 10},
    "/v0/topics/{topic}/ack": {"node": "thief", "seqs": [1]},
    "/v0/watch": {"topics": {"work": {}}},
    "/v0/routers/{router}": {"source": "work", "dest": "stolen"},
    "/v0/instances": {"machine": "order", "instance_id": "stolen"},
    "/v0/instances/{instance_id}/events": {"event": "CANCEL"},
    "/v0/instances/batch": {
        "operations": [{"op": "DELETE_INSTANCE", "params": {"instance_id": "one"}}]
    },
    "/v0/machines/{machine}/versions/{version}": {"definition": ORDER},
}


def routes() -> list[tuple[str, str, Any]]:
    """Method, path and body of every route, with names that are there."""
    found = []
    for path, operations in openapi_document(every_route())["paths"].items():
        filled = path.replace("{machine}", "order").replace("{version}", "2")
        filled = filled.replace("{instance_id}", "one").replace("{file}", "main.js")
        filled = filled.replace("{router}", "copy").replace("{wid}", "w")
        filled = filled.replace("{topic}", "work")
        if path.endswith("/work"):
            filled += "?node=thief&max=10"
        for method in operations:
            body = None if method in ("get", "delete") else BODIES.get(path, {})
            found.append((method.upper(), filled, body))
    return found


def open_paths() -> set[str]:
    return {route.path for route in every_route() if route.is_open} | {"/ui/main.js"}


class _Page(BaseHTTPRequestHandler):
    """The page of another site; empty, since what it does is evaluated in it."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", "22")
        self.end_headers()
        self.wfile.write(b"<body>elsewhere</body>")

    def log_message(self, *_: object) -> None:
        """Nothing on the console of the tests."""


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[int]:
    site = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    thread = threading.Thread(target=site.serve_forever, name="elsewhere", daemon=True)
    thread.start()
    yield site.server_port
    site.shutdown()
    site.server_close()
    thread.join(20)


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    chosen = settings(rcpx_port=0, deadlines={"drain_s": 1.0})
    with running(tmp_path_factory.mktemp("victim") / "data", chosen) as server:
        with server.talk() as http:
            http.put("work", type="queue")
            http.put("idle", type="queue")
            http.write("work", *range(5))
            http.write("log", 1)
            http.ask("PUT", "/v0/routers/copy", {"source": "log", "dest": "copies"})
            http.ask("PUT", "/v0/machines/order/versions/1", {"definition": ORDER})
            http.ask("POST", "/v0/instances", {"machine": "order", "instance_id": "one"})
        yield server


@pytest.fixture(scope="module")
def curious() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    with browsing(f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1") as found:
        yield found


UNSTEADY = ("performance", "last_read_ts", "effective_priority")
"""What looking at it changes."""


def without_unsteady(told: Any) -> Any:
    if isinstance(told, list):
        return [without_unsteady(each) for each in told]
    if not isinstance(told, dict):
        return told
    return {name: without_unsteady(each) for name, each in told.items() if name not in UNSTEADY}


def state_of(http: RawHttp) -> dict[str, Any]:
    """Everything a page could have changed."""
    paths = (
        "/v0/topics?page_size=1000", "/v0/routers", "/v0/machines", "/v0/instances",
        "/v0/instances/one",
    )  # fmt: skip
    told = {path: without_unsteady(http.get(path).json) for path in paths}
    told["jobs"] = http.diff("work").json["records"]
    status = http.get("/v0/status").json
    told["watches"] = [status["watch_sessions"], status["sse_connections"]]
    return told


def attack(page: Page, server: RunningServer, asked: list[Response]) -> list[str]:
    target = f"http://127.0.0.1:{server.port}"

    def note(response: Response) -> None:
        asked.append(response)

    page.on("response", note)
    heard: list[str] = page.evaluate(ATTACK, [target, routes(), 3_000])
    page.wait_for_load_state()
    return heard


@pytest.mark.parametrize("site", ["localhost", "127.0.0.1"], ids=["cross-site", "same-site"])
def test_a_page_of_another_site_changes_nothing_and_reads_nothing(
    victim: RunningServer, curious: Browser, elsewhere: int, site: str
) -> None:
    with victim.talk() as http:
        before = state_of(http)
        page = curious.new_page()
        page.goto(f"http://{site}:{elsewhere}/")
        asked: list[Response] = []
        heard = attack(page, victim, asked)
        page.close()
        assert heard == []
        assert state_of(http) == before
    answers = [
        (each.request.method, each.url.partition(f":{victim.port}")[2].partition("?")[0], each)
        for each in asked
        if f":{victim.port}/" in each.url
    ]
    let_in = {
        (method, path, each.status)
        for method, path, each in answers
        if path not in open_paths() and each.status not in (FORBIDDEN, NOT_ALLOWED)
    }
    assert let_in == set(), "every request of it was refused before anything was looked at"
    refused = {(method, path) for method, path, each in answers if each.status == FORBIDDEN}
    wanted = {
        (method, path.partition("?")[0])
        for method, path, _ in routes()
        if method in ("GET", "POST") and path not in open_paths()
    }
    assert refused >= wanted, "and every route was tried"


def test_a_name_that_was_made_to_lead_here_opens_nothing_to_its_page(
    victim: RunningServer, curious: Browser
) -> None:
    with victim.talk() as http:
        before = state_of(http)
        page = curious.new_page()
        page.goto(f"http://{REBOUND}:{victim.port}/docs")
        told = page.evaluate(
            """async (routes) => {
              const heard = [];
              for (const [method, path, body] of routes) {
                const answer = await fetch(path, {
                  method, body: body === null ? undefined : JSON.stringify(body),
                  headers: { 'content-type': 'application/json' },
                });
                heard.push([path, answer.status, await answer.text()]);
              }
              return heard;
            }""",
            routes(),
        )
        page.close()
        assert len(told) == len(routes())
        for path, status, text in told:
            if path not in open_paths():
                assert (status, json.loads(text)["error"]["code"]) == (FORBIDDEN, "forbidden")
        assert state_of(http) == before


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "shop.localhost"])
def test_a_page_of_the_server_itself_may_ask_for_everything(
    victim: RunningServer, curious: Browser, name: str
) -> None:
    page = curious.new_page()
    page.goto(f"http://{name}:{victim.port}/docs")
    told = page.evaluate(
        """async () => {
          const seen = await fetch('/v0/topics/work?touch=false');
          const written = await fetch('/v0/topics/own', {
            method: 'POST', body: '{"records":[{"data":1}]}',
            headers: { 'content-type': 'application/json' },
          });
          const socket = new WebSocket(`ws://${location.host}/v0/ws`);
          const opened = await new Promise(resolve => {
            socket.onopen = () => resolve(true);
            socket.onerror = () => resolve(false);
          });
          socket.close();
          const opens = await new Promise(resolve => {
            const source = new EventSource('/v0/topics/idle/work?node=own');
            source.onopen = () => { source.close(); resolve(true); };
            source.onerror = () => { source.close(); resolve(false); };
          });
          return [seen.status, written.ok, opened, opens];
        }"""
    )
    page.close()
    assert told == [200, True, True, True]
