"""Where a watch of several topics begins: checked before anything is read or sent."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.api.call_list import Topics
from headwater.config.topic import check_topic_name
from headwater.core.errors import InvalidRequestError


def watch_starts(topics: Topics, from_seq: int | None) -> dict[str, int | None]:
    """By name, or by a prefix and a star: the seq that is known, or None for the end."""
    if isinstance(topics, str):
        topics = [topics]
    starts: dict[str, int | None] = {}
    if isinstance(topics, Mapping):
        starts.update(topics)
    else:
        starts.update(dict.fromkeys(topics, from_seq))
    if not starts:
        raise InvalidRequestError("name at least one topic to watch")
    for name, start in starts.items():
        if name != "*":
            check_topic_name(name.removesuffix("*"))
        if start is not None and start < 0:
            raise InvalidRequestError("from_seq must be a whole number, 0 or more")
    return starts
