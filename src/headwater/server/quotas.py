"""Counting what a limit allows; over it, 429 with the limit's name."""

from __future__ import annotations

from collections import Counter

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


class Quotas:
    def __init__(self, limits: LimitSettings) -> None:
        self._limits = limits
        self._streams = 0
        self._streams_by_key: Counter[bytes] = Counter()
        self._in_flight: Counter[bytes] = Counter()

    @property
    def streams(self) -> int:
        return self._streams

    def open_stream(self, key: ApiKey) -> None:
        if self._streams >= self._limits.streams:
            raise over_limit("streams", self._limits.streams)
        if self._streams_by_key[key.digest] >= self._limits.streams_per_key:
            raise over_limit("streams_per_key", self._limits.streams_per_key)
        self._streams += 1
        self._streams_by_key[key.digest] += 1

    def close_stream(self, key: ApiKey) -> None:
        self._streams -= 1
        self._streams_by_key[key.digest] -= 1

    def begin(self, key: ApiKey) -> None:
        """A request whose answer comes later."""
        if self._in_flight[key.digest] >= self._limits.in_flight_per_key:
            raise over_limit("in_flight_per_key", self._limits.in_flight_per_key)
        self._in_flight[key.digest] += 1

    def end(self, key: ApiKey) -> None:
        self._in_flight[key.digest] -= 1
