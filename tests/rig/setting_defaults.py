"""What a setting is when no source gives it."""

from __future__ import annotations

from typing import Any

from headwater.config.keys import Key
from headwater.config.loading import Settings, _sections


def default_of(key: Key) -> Any:
    section, _, name = key.path.partition(",")[0].partition(".")
    return getattr(_sections(Settings())[section], name)
