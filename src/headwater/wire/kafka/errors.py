"""What bytes of a Kafka client can be wrong with, as one error."""

from __future__ import annotations

from headwater.core.errors import RequestError


class ProtocolError(RequestError):
    """Bytes that are no Kafka request. The server closes the connection; nothing was done."""
