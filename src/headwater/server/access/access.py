"""What every port of one server asks before it takes a request: keys, quotas, and which page it
comes from, as far as a browser says.

A server without keys is guarded by its address alone. A page of another site, open in a browser on
the same machine, reaches it too, and an image on it is enough to send a GET. So the server
checks each request, whatever its method, by these headers:

- `Sec-Fetch-Site` says how the page and we are related. Another port of this machine is another
  site to us, though browsers call it the same.
- `Origin` and `Referer` name the page. They are all there is where a browser leaves out the former,
  which it does for plain HTTP to other addresses than loopback ones.
- `Host` shows a name of another site that was made to lead here after its page was loaded: to the
  browser that page is ours. Such a name has a dot; addresses are let in, and the names of one's own
  network to programs that are no browsers.

A client that sends none of this is no browser and needs no proof. With keys the server checks none
of it: a browser adds no key by itself.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Final

from headwater.config.server import ServerSettings
from headwater.server.access.keys import KeyRing
from headwater.server.access.quotas import Quotas
from headwater.wire.http_errors import HttpError

_PRIVATE: Final = (".localhost", ".local", ".internal", ".test")
"""No name below these can be registered in the public DNS."""
_LOOPBACK: Final = ("localhost", ".localhost")
"""Browsers resolve these without asking DNS."""
_BROWSER: Final = b"mozilla/"
"""All of them call themselves so."""
_OURS: Final = (b"same-origin", b"none")
"""Our own page; or no page, but an address that was typed."""
_ANOTHER_SITE: Final = (
    "pages of other sites may not use a server without keys; name those that may in "
    "HEADWATER_ALLOWED_ORIGINS, or set HEADWATER_API_KEYS"
)


class Sites:
    """What a server without keys lets browsers do."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._hosts = frozenset(name.lower() for name in settings.allowed_hosts)
        self._origins = frozenset(
            origin.lower().rstrip("/").encode() for origin in settings.allowed_origins
        )

    def check(self, headers: Mapping[bytes, bytes], *, takes_proof: bool) -> None:
        """Raise for a request that a page of another site sent, or may have sent.

        `takes_proof`: not a word about the page is not enough, if it is a browser at all.
        """
        host = headers.get(b"host", b"").lower()
        origin = headers.get(b"origin")
        site = headers.get(b"sec-fetch-site")
        is_browser = (
            origin is not None
            or site is not None
            or headers.get(b"user-agent", b"")[: len(_BROWSER)].lower() == _BROWSER
        )
        if not self._settings.allow_insecure_no_auth:
            self._check_host(host, is_browser=is_browser)
        if origin is not None and origin.lower() in self._origins:
            return
        verdicts = []
        if origin is not None:
            verdicts.append(self._is_ours(origin, host))
        if site is not None:
            verdicts.append(site in _OURS)
        if not verdicts and b"referer" in headers:
            verdicts.append(self._is_ours(_origin_of(headers[b"referer"]), host))
        if not (all(verdicts) if verdicts else not (is_browser and takes_proof)):
            raise HttpError("forbidden", _ANOTHER_SITE)

    def _is_ours(self, origin: bytes, host: bytes) -> bool:
        """Where there is no Host header there is no browser either."""
        origin = origin.lower()
        return (bool(host) and origin.partition(b"://")[2] == host) or origin in self._origins

    def _check_host(self, host: bytes, *, is_browser: bool) -> None:
        name = name_of(host)
        if name in self._hosts:
            return
        own = self._settings.host
        if is_foreign(name, own) or (is_browser and not _is_certain(name, own)):
            raise HttpError(
                "forbidden",
                "a server without keys is not used under the name of a site; use its address, "
                "name it in HEADWATER_ALLOWED_HOSTS, or set HEADWATER_API_KEYS",
            )


def name_of(host: bytes) -> str:
    """The name or address in a Host header, without the port."""
    name = host.decode("latin-1").lower()
    if name.startswith("["):
        return name.partition("]")[0].removeprefix("[")
    name = name.rpartition(":")[0] if ":" in name else name
    return name.removesuffix(".")


def is_foreign(name: str, own: str) -> bool:
    """A name with a dot in it, which is neither an address nor ours."""
    if "." not in name or name.endswith(_PRIVATE) or name == own.lower():
        return False
    return not _is_address(name)


def _is_certain(name: str, own: str) -> bool:
    """No other machine can make it lead to its own page, not even in the same network."""
    return name.endswith(_LOOPBACK) or name == own.lower() or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _origin_of(referer: bytes) -> bytes:
    scheme, separator, rest = referer.partition(b"://")
    return scheme + separator + rest.partition(b"/")[0]


class Access:
    def __init__(self, settings: ServerSettings) -> None:
        self.keys = KeyRing(settings.api_keys)
        self.sites = Sites(settings)
        self.quotas = Quotas(settings.limits, len(self.keys), len(settings.kafka_users))
