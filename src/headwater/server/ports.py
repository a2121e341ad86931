"""Binding a port: TLS, how many sockets there may be, and why a port cannot be had."""

from __future__ import annotations

import os
import resource
import ssl
import sys
from typing import Final

from headwater.config.server import ServerSettings
from headwater.core.errors import AccessError, RequestError

BACKLOG: Final = 1024
HTTP2: Final = "h2"
"""Its name in a TLS handshake."""
FILES_RESERVED: Final = 512
"""Open files that are left for the log and the segments."""

PORT_WORDS: Final = {
    "http": ("on {}", "--port, or 0 for a free one"),
    "kafka": ("for Kafka clients on {}", "--kafka-port, 0 for a free one, or off"),
    "rcpx": ("on {} for RCPX", "--rcpx-port, 0 for a free one, or off"),
    "metrics": ("on {} for metrics", "--metrics-port, or 0 for a free one"),
}
"""What is said when one of them cannot be had, and what else to give."""


def why_not(error: OSError) -> str:
    """The system's own words. A name that is not found has no errno of the usual kind."""
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    return (error.strerror or str(error)).lower()


def cannot_listen(name: str, host: str, port: int, error: OSError) -> AccessError:
    """`name`: of the port, one of `PORT_WORDS`."""
    where, advice = PORT_WORDS[name]
    return AccessError(
        f"cannot listen {where.format(f'{host}:{port}')} ({why_not(error)})",
        advice=f"choose another {advice}",
    )


def connections_possible() -> int:
    """How many sockets fit beside the files of the log, after asking for as many as allowed.

    Without descriptors left, the log could not take its next file: clients must never be able to
    cause that.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard == resource.RLIM_INFINITY:
        return sys.maxsize
    return max(hard - FILES_RESERVED, hard // 2)


def tls_context(settings: ServerSettings) -> ssl.SSLContext | None:
    if settings.tls_certificate is None and settings.tls_key is None:
        return None
    if settings.tls_certificate is None or settings.tls_key is None:
        raise RequestError("TLS needs both a certificate and a key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols([HTTP2, "http/1.1"])
    try:
        context.load_cert_chain(settings.tls_certificate, settings.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise AccessError(
            f"the TLS certificate or key cannot be used ({error})", path=settings.tls_certificate
        ) from error
    return context
