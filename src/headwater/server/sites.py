"""Whose page a request comes from, as far as a browser tells.

A server without keys is guarded by its address alone. A page of another site, open in a browser on
the same machine, reaches it too: under the server's own address, which the browser's Origin tells,
or under a name of that site which was made to lead here after the page was loaded, which the Host
header tells. Such a name has a dot; addresses and the names of one's own network are let in.
"""

from __future__ import annotations

import ipaddress
from typing import Final

from headwater.config.server import ServerSettings
from headwater.wire.http_errors import HttpError

_PRIVATE: Final = (".localhost", ".local", ".internal", ".test")
"""Nobody can have a name below these that others would find."""


def refuse_foreign_names(host: bytes | None, settings: ServerSettings) -> None:
    """For a server without keys that was not told to be open to all."""
    if settings.allow_insecure_no_auth or not is_foreign(host or b"", settings.host):
        return
    raise HttpError(
        "forbidden",
        "a server without keys is not used under the name of a site; use its address, or set "
        "HEADWATER_API_KEYS",
    )


def is_foreign(host: bytes, own: str) -> bool:
    """A name with a dot in it, which is neither an address nor ours."""
    name = host.decode("latin-1").lower()
    if name.startswith("["):
        return False  # an IPv6 address
    name = name.rpartition(":")[0] if ":" in name else name
    name = name.removesuffix(".")
    if "." not in name or name.endswith(_PRIVATE) or name == own.lower():
        return False
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return True
    return False
