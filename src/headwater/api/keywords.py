"""Keyword arguments that are known by name: settings of topics and routers, options of workers.

A test compares them with the settings and options that they stand for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Required, TypedDict

from headwater.api.jobs import Outcome, Stop


class TopicKeywords(TypedDict, total=False):
    """Settings of a topic; those that are not named stay as they are."""

    type: str
    """`log` or `queue`."""
    ttl_ms: int
    cap_records: int
    cap_bytes: int
    discard: str
    """`old` or `reject`."""
    durability: str
    """`fsync`, `disk`, `memory` or `ephemeral`."""
    durable: bool
    priority: int | None
    auto_priority: bool
    auto_create: bool
    idempotency_window_ms: int
    dedupe_node: bool
    lease_ms: int
    claim_jitter_ms: int
    max_deliveries: int
    dead_letter: str | None
    leases_durable: bool
    fifo_key: str | None
    """`tag`."""
    paused: bool


class RouterKeywords(TypedDict, total=False):
    """The definition of a router."""

    source: Required[str]
    dest: Required[str]
    preserve_node: bool
    preserve_tag: bool
    create_dest: bool
    create_source: bool
    filter: str | None
    allow_cycle: bool
    guarantee: str
    """`at_least_once` or `exactly_once`."""


class WorkKeywords(TypedDict, total=False):
    """How to work: see `WorkOptions`."""

    node: str
    threads: int
    limit: int | None
    lease_ms: int | None
    retry_ms: int
    retry_ms_max: int
    idle_ms: int | None
    stop: Stop
    on_done: Callable[[Outcome], None]
