"""The records that are written: small JSON events of an exact size."""

from __future__ import annotations

import json
from typing import Final

PAYLOAD_BYTES: Final = 200


def payload(number: int, size: int = PAYLOAD_BYTES) -> bytes:
    """A JSON object of exactly `size` bytes that differs for every number."""
    event = {"id": number, "kind": "order.placed", "amount": number % 9973, "note": ""}
    text = json.dumps(event, separators=(",", ":"))
    event["note"] = "x" * (size - len(text))
    return json.dumps(event, separators=(",", ":")).encode()


PAYLOADS: Final = [payload(number) for number in range(1000)]
