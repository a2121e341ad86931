"""Which topic an index entry belongs to: BLAKE3, keyed by the organisation.

The only module that imports the library.
"""

from __future__ import annotations

from typing import Final

from blake3 import blake3

TOPIC_HASH_BYTES: Final = 16
_KEY_BYTES: Final = 32


def topic_hash(org: int, name: str) -> bytes:
    """16 bytes for a name; other bytes for the same name in another organisation."""
    salt = org.to_bytes(8, "little")
    hasher = blake3(salt + name.encode(), key=salt.ljust(_KEY_BYTES, b"\0"))
    return hasher.digest(length=TOPIC_HASH_BYTES)


def key_text(org: int, hashed: bytes, partition: int) -> str:
    """A partition's key, as people and spans see it: `{org}-{hash in decimal}-{partition}`."""
    return f"{org}-{int.from_bytes(hashed, 'little')}-{partition}"
