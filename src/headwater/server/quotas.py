"""Counting what a limit allows; over it, 429 with the limit's name."""

from __future__ import annotations

from headwater.config.server import LimitSettings
from headwater.server.keys import ApiKey
from headwater.wire.http_errors import HttpError


def over_limit(limit: str, allowed: int) -> HttpError:
    return HttpError(
        "throttled",
        f"at most {allowed} {limit.replace('_', ' ')}",
        detail={"limit": limit, "allowed": allowed},
        headers={"retry-after": "1"},
    )


class Usage:
    """What one key has under way."""

    __slots__ = ("_limits", "in_flight", "streams")

    def __init__(self, limits: LimitSettings) -> None:
        self._limits = limits
        self.in_flight = 0
        self.streams = 0

    def has_room(self, requests: int) -> bool:
        """For so many more under way."""
        return self.in_flight + requests <= self._limits.in_flight_per_key

    def begin(self) -> None:
        """A request whose answer comes later."""
        if not self.has_room(1):
            raise over_limit("in_flight_per_key", self._limits.in_flight_per_key)
        self.in_flight += 1

    def end(self) -> None:
        self.in_flight -= 1


class Quotas:
    def __init__(self, limits: LimitSettings) -> None:
        self._limits = limits
        self._streams = 0
        self._usage: dict[bytes, Usage] = {}

    @property
    def streams(self) -> int:
        return self._streams

    def of(self, key: ApiKey) -> Usage:
        """There are as many of these as keys in the settings."""
        found = self._usage.get(key.digest)
        if found is None:
            found = self._usage[key.digest] = Usage(self._limits)
        return found

    def open_stream(self, key: ApiKey) -> None:
        usage = self.of(key)
        if self._streams >= self._limits.streams:
            raise over_limit("streams", self._limits.streams)
        if usage.streams >= self._limits.streams_per_key:
            raise over_limit("streams_per_key", self._limits.streams_per_key)
        self._streams += 1
        usage.streams += 1

    def close_stream(self, key: ApiKey) -> None:
        self._streams -= 1
        self.of(key).streams -= 1
