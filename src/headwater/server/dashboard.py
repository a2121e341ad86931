"""The dashboard's files and the one route that only the dashboard needs.

The pages are static files of `headwater.web`: HTML, CSS and JavaScript without a build step. They
are loaded once and sent with an ETag that browsers check again on each visit, so an upgrade of the
server is seen at once. They are public like the program itself. What the pages show, they request
over the same HTTP API as any client, with the key that the user entered; the dashboard has no
privileges. The content security policy lets them load nothing from elsewhere and run nothing
written into the page, so a payload that got into it as markup would still do nothing.

The route is that of the last reports of `headwater verify`, `headwater doctor` and the pipeline's
jobs, which those leave in a directory beside the data (`engine.maintenance.reports`). Handlers run
on the loop thread; reading reports waits for files, so it is an operation.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Final, NamedTuple

import msgspec

from headwater.disk.package import package_files
from headwater.engine.engine import Engine
from headwater.engine.maintenance.reports import Reports, read_reports
from headwater.engine.operation import InFiles, Operation
from headwater.format.checksum import checksum64
from headwater.server.access.keys import Scope
from headwater.server.backend import Backend
from headwater.server.http.exchange import NOT_MODIFIED, Exchange
from headwater.server.http.route_table import Route
from headwater.server.http.topic_handlers import answer
from headwater.wire.http_errors import HttpError
from headwater.wire.status_answers import JobsAnswer

PACKAGE: Final = "headwater.web"
FRONT: Final = "index.html"
KINDS: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class WebFile(NamedTuple):
    contents: bytes
    headers: dict[str, str]


@cache
def web_files() -> dict[str, WebFile]:
    """Every file by name, with the headers it is sent with. Read once: they do not change."""
    return {
        name: WebFile(contents, _headers(kind, contents))
        for suffix, kind in KINDS.items()
        for name, contents in package_files(PACKAGE, suffix)
    }


def _headers(kind: str, contents: bytes) -> dict[str, str]:
    return {
        "content-type": kind,
        "etag": f'"{checksum64(contents):016x}"',
        "cache-control": "no-cache",  # kept, and checked again: an upgrade is seen at once
        "content-security-policy": POLICY,
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }


def front(_backend: Backend, exchange: Exchange) -> None:
    _send(exchange, web_files()[FRONT])


def file(_backend: Backend, exchange: Exchange) -> None:
    web_file = web_files().get(exchange.parameters[0])
    if web_file is None:
        raise HttpError("not_found", "the dashboard has no such file")
    _send(exchange, web_file)


def _send(exchange: Exchange, file: WebFile) -> None:
    known = exchange.header(b"if-none-match") or ""
    if file.headers["etag"] in [tag.strip().removeprefix("W/") for tag in known.split(",")]:
        exchange.answer(NOT_MODIFIED, b"", file.headers)
    else:
        exchange.answer(200, file.contents, file.headers)


def _read_reports(engine: Engine) -> Operation[Reports]:
    core = engine.core
    reports: Reports = yield InFiles(partial(read_reports, core.disk, core.directory))
    return reports


async def list_jobs(backend: Backend, exchange: Exchange) -> None:
    reports = await backend.ready_database.drive(_read_reports(backend.engine))
    runs = [msgspec.structs.asdict(report) for report in reports.kept]
    answer(exchange, 200, {"runs": runs, "unreadable": reports.unreadable})


_FILE: Final = {200: "the file", 304: "the one that is known already"}

DASHBOARD_ROUTES: Final = (
    Route("GET", "/", front, "The dashboard", is_open=True, answers=_FILE),
    Route(
        "GET", "/ui/{file}", file, "A file of the dashboard",
        is_open=True, answers=_FILE, errors=("not_found",),
    ),
    Route(
        "GET", "/v0/jobs", list_jobs,
        "The last reports of verify, doctor and pipeline jobs",
        Scope.ADMIN,
        answer=JobsAnswer,
    ),
)  # fmt: skip
