"""What a bridge is to copy, and how far it has come.

Where a cluster is: `kafka://[user:password@]host:port[,host:port]` as settings of librdkafka.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

from headwater.core.errors import InvalidRequestError
from headwater.observe.metrics import Sample

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


POSITIONS_PREFIX: Final = "headwater-bridge."


@dataclass(frozen=True, slots=True)
class BridgeSettings:
    source: Cluster
    dest: Cluster
    topics: tuple[str, ...]
    name: str = "default"
    until_caught_up: bool = False
    skip_lost: bool = False
    settle_s: float = 2.0
    """After a crash: how long the destination must stay as it is before it is counted."""

    @property
    def positions(self) -> str:
        return POSITIONS_PREFIX + self.name


@dataclass(frozen=True, slots=True)
class BridgeProgress:
    copied: int
    lag: int
    """Records of the source that are not acked by the destination yet."""
    lags: dict[str, int] = field(default_factory=dict)

    def samples(self) -> list[Sample]:
        rows = [Sample("bridge_records_copied", self.copied)]
        for name, lag in self.lags.items():
            topic, _, partition = name.rpartition("/")
            rows.append(Sample("bridge_lag", lag, (topic, partition)))
        return rows
