"""The dashboard: files of the package, served as they are.

They are public, like the program itself; they request what they show over the API, with the
visitor's own key. The policy lets them load nothing from elsewhere and run nothing written into
the page, so a payload that got into it as markup would still do nothing.
"""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple

from headwater.disk.package import package_files
from headwater.format.checksum import checksum64
from headwater.server.backend import Backend
from headwater.server.http.exchange import NOT_MODIFIED, Exchange
from headwater.wire.http_errors import HttpError

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
