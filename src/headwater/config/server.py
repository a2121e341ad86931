"""Settings of the server: where it listens, what it accepts, how long it waits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from headwater.core.units import KIB, MIB


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """Over one of these: 429 with the limit's name, or 4xx for a single request."""

    topics: int = 100_000
    watch_sessions: int = 10_000
    streams: int = 10_000
    streams_per_key: int = 1_000
    in_flight_per_key: int = 1_000
    reserved_share: float = 0.5
    """Of the limits that all keys share, this part is kept for each of them, in equal parts."""
    body_bytes: int = 64 * MIB
    record_bytes: int = 1 * MIB
    """Data and meta; the format takes no more than this, so it can only be lowered."""
    header_bytes: int = 128 * KIB
    header_count: int = 100
    pipeline: int = 128
    """Requests of one connection that are answered later; reading pauses beyond."""
    connections: int = 20_000
    kafka_request_bytes: int = 100 * MIB
    """Of one request of a Kafka client that carries records."""
    kafka_partitions: int = 1_000_000
    """Of all Kafka topics together."""
    expansion_ratio: int = 200
    """A compressed body may grow at most so many times."""


@dataclass(frozen=True, slots=True)
class DeadlineSettings:
    """Counted from when something began; a byte now and then does not extend them."""

    headers_s: float = 10.0
    body_s: float = 60.0
    idle_s: float = 75.0
    drain_s: float = 10.0


@dataclass(frozen=True, slots=True)
class ServerSettings:
    host: str = "127.0.0.1"
    port: int = 4000
    """0 picks a free one."""
    port_file: str | None = None
    metrics_port: int | None = None
    rcpx_port: int | None = None
    """For state machines over RCPX. None does not listen; a server that is run by itself does, see
    `SERVE_SETTINGS`."""
    kafka_port: int | None = None
    """For Kafka clients, in the same way."""
    kafka_advertised: str | None = None
    """host:port that Kafka's answers name; None: the address a client connected to."""
    kafka_users: tuple[str, ...] = ()
    """name:password[:organisation[:scopes]], for SASL."""
    kafka_auto_create_topics: bool = True
    kafka_default_partitions: int = 1
    kafka_skip_damaged: bool = False
    """Consumers pass records that cannot be read, instead of being refused there. It is logged."""
    api_keys: tuple[str, ...] = ()
    """secret[:scopes[:prefixes[:org=number]]]"""
    allow_insecure_no_auth: bool = False
    allowed_hosts: tuple[str, ...] = ()
    """Names under which browsers may use a server without keys, besides its addresses."""
    allowed_origins: tuple[str, ...] = ()
    """scheme://host[:port] of pages that may, besides its own."""
    workers: int = 0
    """Gateway processes for connections; 0: all in one process."""
    tls_certificate: str | None = None
    tls_key: str | None = None
    limits: LimitSettings = field(default_factory=LimitSettings)
    deadlines: DeadlineSettings = field(default_factory=DeadlineSettings)
    webhooks: tuple[str, ...] = ()
    """[machine=]URL: the server posts every transition there, or those of one machine."""
    webhook_secret: str | None = None
    """Signs the posts to webhooks."""
    webhook_retry_ms: int = 1_000
    """After a first failure; doubled with every further one, up to five minutes."""
    session_ttl_ms: int = 300_000
    stream_queue_frames: int = 1024
    websocket_queue_messages: int = 4


RCPX_PORT: Final = 7401
KAFKA_PORT: Final = 9092
SERVE_SETTINGS: Final = ServerSettings(rcpx_port=RCPX_PORT, kafka_port=KAFKA_PORT)
"""What `headwater serve` begins with: it speaks every protocol there is. A server inside another
program speaks those it is told to."""
