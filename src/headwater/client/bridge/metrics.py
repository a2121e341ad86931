"""The numbers of a bridge for a scraper on this machine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from headwater.core.errors import AccessError
from headwater.observe.metrics import metrics_as_text

if TYPE_CHECKING:
    from headwater.client.bridge.settings import BridgeProgress

ReadProgress = Callable[[], "BridgeProgress | None"]


@contextmanager
def serve_metrics(read_progress: ReadProgress, port: int | None) -> Iterator[int | None]:
    """While it is open, GET /metrics on loopback gives the progress. Yields the port."""
    if port is None:
        yield None
        return

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            progress = read_progress()
            body = b"" if progress is None else metrics_as_text(progress.samples())
            self.send_response(200 if self.path in ("/metrics", "/v0/metrics") else 404)
            self.send_header("content-type", "text/plain; version=0.0.4")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Scrapes are not logged."""

    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except OSError as error:
        raise AccessError(
            f"cannot listen on 127.0.0.1:{port} for metrics ({error.strerror})",
            advice="choose another --metrics-port, or 0 for a free one",
        ) from error
    thread = threading.Thread(target=server.serve_forever, name="bridge-metrics", daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
