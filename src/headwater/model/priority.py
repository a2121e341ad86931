"""How urgent a topic's delivery is: set by hand, or by the time of its last read."""

from __future__ import annotations

from typing import Final

AUTO_PRIORITY_MAX: Final = 500
HALF_LIFE_MS: Final = 30_000
FORGOTTEN_MS: Final = 300_000


def base_priority(manual: int | None, auto: bool, last_read_ts: int, now_ms: int) -> int:
    """The manual priority, else one that halves every 30 s without a reader."""
    if manual is not None:
        return manual
    idle = now_ms - last_read_ts
    if not auto or not last_read_ts or idle >= FORGOTTEN_MS:
        return 0
    return round(AUTO_PRIORITY_MAX * 2 ** (-max(idle, 0) / HALF_LIFE_MS))
