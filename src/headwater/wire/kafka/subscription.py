"""What members of a consumer group say they read, in the words of Kafka's consumer protocol.

The metadata a consumer joins with begins alike in every version: the version, then the names of
its topics. What follows is between consumers.
"""

from __future__ import annotations

import struct
from typing import Final

CONSUMER: Final = "consumer"
"""The protocol type of groups whose members speak so."""
_START: Final = struct.Struct(">hi")
_LENGTH: Final = struct.Struct(">h")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics a member reads. None where that is unknown: its metadata has another form."""
    try:
        version, count = _START.unpack_from(metadata)
        if version < 0 or count < 0:
            return None
        names, at = set(), _START.size
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, at)
            at += _LENGTH.size
            if length < 0 or at + length > len(metadata):
                return None
            names.add(metadata[at : at + length].decode())
            at += length
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(names)
