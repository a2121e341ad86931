"""Where a cluster is: `kafka://[user:password@]host:port[,host:port]` as settings of librdkafka."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote

from headwater.core.errors import InvalidRequestError

_SCHEMES: Final = {"kafka": ("PLAINTEXT", "SASL_PLAINTEXT"), "kafkas": ("SSL", "SASL_SSL")}
_PORT_DEFAULT: Final = "9092"
_HOST: Final = re.compile(r"(?P<host>\[[^\[\]]+\]|[^:\[\]]+)(:(?P<port>[0-9]{1,5}))?")

Settings = dict[str, str | int | float | bool]


class Cluster:
    """One end of a bridge. Its text has the address without the password."""

    def __init__(self, address: str, more: Iterable[str] = ()) -> None:
        """`more` are lines of `name=value`, settings that librdkafka knows."""
        scheme, marker, rest = address.partition("://")
        if not marker or scheme not in _SCHEMES or not rest.strip("/"):
            raise InvalidRequestError(
                f"{_without_secret(address)!r} is no address of a cluster; "
                "write kafka://host:port, or kafkas:// for TLS"
            )
        credentials, _, hosts = rest.rstrip("/").rpartition("@")
        servers = ",".join(_host(each) for each in hosts.split(","))
        self.settings: Settings = {"bootstrap.servers": servers}
        plain, with_user = _SCHEMES[scheme]
        self.settings["security.protocol"] = with_user if credentials else plain
        if credentials:
            user, _, password = credentials.partition(":")
            self.settings |= {
                "sasl.mechanism": "PLAIN",
                "sasl.username": unquote(user),
                "sasl.password": unquote(password),
            }
        self.settings |= dict(_setting(line) for line in more if _says_something(line))

    def __str__(self) -> str:
        return f"kafka://{self.settings['bootstrap.servers']}"


def _host(text: str) -> str:
    """`host`, `host:port`, and in brackets what has colons itself: `[::1]`, `[::1]:9092`."""
    found = _HOST.fullmatch(text.strip())
    port = (found["port"] or _PORT_DEFAULT) if found else ""
    if found is None or not 0 < int(port) < 65_536:
        raise InvalidRequestError(f"{text!r} is no host:port")
    return f"{found['host']}:{port}"


def _without_secret(address: str) -> str:
    return address.rpartition("@")[2]


def _says_something(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _setting(line: str) -> tuple[str, str]:
    name, marker, value = line.partition("=")
    if not marker or not name.strip():
        raise InvalidRequestError("a line of settings must be name=value")
    return name.strip(), value.strip()
