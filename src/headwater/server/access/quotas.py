"""Counting what a limit allows; over it, 429 with the limit's name.

A limit of the whole server is shared by all keys, and no one key can take all of it: a part is kept
for each, in equal parts, and only the rest is first come, first served. Without keys, or with one,
nothing is reserved.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from headwater.config.server import LimitSettings
from headwater.server.access.keys import ApiKey
from headwater.wire.http_errors import HttpError

KAFKA_USER: Final = b"kafka user "


def over_limit(limit: str, allowed: int) -> HttpError:
    return HttpError(
        "throttled",
        f"at most {allowed} {limit.replace('_', ' ')}",
        detail={"limit": limit, "allowed": allowed},
        headers={"retry-after": "1"},
    )


class Shares:
    """One limit, and who holds how much of it."""

    def __init__(self, limit: str, total: int, holders: int, reserved: float) -> None:
        self._limit = limit
        self.total = total
        self._holders = max(holders, 1)
        self._reserved = reserved if holders > 1 else 1.0
        self._held: Counter[bytes] = Counter()

    def __len__(self) -> int:
        return self._held.total()

    @property
    def kept(self) -> int:
        """So many are there for each holder, whatever the others do."""
        return int(self.total * self._reserved) // self._holders

    def has_room(self, holder: bytes) -> bool:
        kept = self.kept
        if self._held[holder] < kept:
            return True
        beyond = sum(max(held - kept, 0) for held in self._held.values())
        return beyond < self.total - kept * self._holders

    def require(self, holder: bytes) -> None:
        if not self.has_room(holder):
            kept_for_others = self.kept * (self._holders - 1)
            raise over_limit(self._limit, self.total - kept_for_others)

    def take(self, holder: bytes) -> None:
        self.require(holder)
        self._held[holder] += 1

    def give_back(self, holder: bytes) -> None:
        self._held[holder] -= 1


class Usage:
    """What one key has under way."""

    __slots__ = ("_limits", "in_flight", "streams")

    def __init__(self, limits: LimitSettings) -> None:
        self._limits = limits
        self.in_flight = 0
        self.streams = 0

    def begin_if_room(self, requests: int) -> bool:
        """So many requests whose answers come later; False, and none, when there is no room."""
        in_flight = self.in_flight + requests
        if in_flight > self._limits.in_flight_per_key:
            return False
        self.in_flight = in_flight
        return True

    def begin(self) -> None:
        """A request whose answer comes later."""
        if not self.begin_if_room(1):
            raise over_limit("in_flight_per_key", self._limits.in_flight_per_key)

    def end(self) -> None:
        self.in_flight -= 1


class Quotas:
    def __init__(self, limits: LimitSettings, keys: int, users: int) -> None:
        """`users`: of Kafka, who hold connections as keys do over RCPX."""
        reserved = limits.reserved_share
        self._limits = limits
        self.open_streams = Shares("streams", limits.streams, keys, reserved)
        self.watches = Shares("watch_sessions", limits.watch_sessions, keys, reserved)
        self.connections = Shares("connections", limits.connections, keys + users, reserved)
        """Of those that stay open as long as their client likes, once it has signed in."""
        self._usage: dict[bytes, Usage] = {}

    @property
    def streams(self) -> int:
        return len(self.open_streams)

    def of(self, key: ApiKey) -> Usage:
        """There are as many of these as keys in the settings."""
        usage = self._usage.get(key.digest)
        if usage is None:
            usage = self._usage[key.digest] = Usage(self._limits)
        return usage

    def open_stream(self, key: ApiKey) -> None:
        usage = self.of(key)
        self.open_streams.require(key.digest)
        if usage.streams >= self._limits.streams_per_key:
            raise over_limit("streams_per_key", self._limits.streams_per_key)
        self.open_streams.take(key.digest)
        usage.streams += 1

    def close_stream(self, key: ApiKey) -> None:
        self.open_streams.give_back(key.digest)
        self.of(key).streams -= 1
