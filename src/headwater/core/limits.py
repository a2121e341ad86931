"""How large and how many: every limit of the contract, by name and with its unit.

Limits on what a caller sends are checked before anything is changed. Values that are clamped and
not refused say so in their name.
"""

from __future__ import annotations

import re
from typing import Final

from headwater.core.units import KIB, MIB

NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}")
"""A topic's name, whole. Names are case-sensitive and never become paths (I16)."""
PARTITION_PREFIX: Final = "kafka:"
"""`kafka:<topic>:<partition>` is a partition of a Kafka topic; no new topic has such a name."""
PARTITION_NAME_PATTERN: Final = re.compile(PARTITION_PREFIX + r"[A-Za-z0-9._-]{1,249}:[0-9]{1,5}")
"""Longer than other names: Kafka's topics may have 249 letters by themselves."""
ROUTER_NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:>-]{0,254}")

INTEGER_MAX: Final = 2**53 - 1
"""The largest integer every JSON reader keeps exact."""

RECORD_BYTES_MAX: Final = 1 * MIB
"""Data and meta of one record together."""
TAG_BYTES_MAX: Final = 256
NODE_BYTES_MAX: Final = 128
META_BYTES_MAX: Final = 16 * KIB
META_KEYS_MAX: Final = 64
LETTER_BYTES_MAX: Final = RECORD_BYTES_MAX + META_BYTES_MAX
"""Of a dead letter: the largest job, and where it is from."""
BATCH_RECORDS_MAX: Final = 10_000
IDEMPOTENCY_KEY_BYTES_MAX: Final = 256

READ_RECORDS_DEFAULT: Final = 256
READ_RECORDS_CLAMP: Final = 1_000
READ_BYTES_DEFAULT: Final = 1 * MIB
READ_BYTES_CLAMP: Final = 8 * MIB
READ_WAIT_MS_CLAMP: Final = 30_000
READ_SLOTS_MAX: Final = 65_536
"""Slots one read scans before it answers with what it has; the cursor moves on."""

WATCH_TOPICS_MAX: Final = 256
"""Names in one watch; a name that ends in a star counts as one."""

PAGE_SIZE_DEFAULT: Final = 100
PAGE_SIZE_MAX: Final = 1_000

PRIORITY_CLAMP: Final = (-1_000, 1_000)
LEASE_MS_CLAMP: Final = (100, 86_400_000)
CLAIM_JITTER_MS_CLAMP: Final = (0, 5_000)
CLAIM_JOBS_CLAMP: Final = (1, 1_000)
CLAIM_BYTES_MAX: Final = 8 * MIB
"""Of the jobs of one claim; one job is always given, however large."""
ACK_JOBS_MAX: Final = 1_000
"""Jobs that one ack, nack or extend names."""
NACK_DELAY_MS_MAX: Final = 86_400_000

TOPICS_MAX: Final = 100_000
ROUTERS_MAX: Final = 10_000
