"""Following a topic: which read comes next, and when to stop."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headwater.core import limits
from headwater.core.results import Diff
from headwater.engine.topics.operations import DiffRequest, diff_request


@dataclass(frozen=True, slots=True)
class TopicWatch:
    idle_ms: int | None
    node: tuple[str, ...]
    match: object | None

    def request(self, from_seq: int) -> DiffRequest:
        """The next read: waits for records, and not longer than the watch may be idle."""
        wait_ms = limits.READ_WAIT_MS_CLAMP if self.idle_ms is None else self.idle_ms
        return diff_request(
            from_seq,
            limits.READ_RECORDS_CLAMP,
            wait_ms=wait_ms,
            node=self.node,
            match=self.match,
        )

    def is_over(self, diff: Diff) -> bool:
        if self.idle_ms is None or diff.records or diff.tombstone is not None:
            return False
        return diff.caught_up


def watch_requests(
    from_seq: int,
    *,
    idle_ms: int | None,
    node: str | Iterable[str] | None,
    match: object | None,
) -> TopicWatch:
    """Check the options of a watch before it begins."""
    nodes = (node,) if isinstance(node, str) else tuple(node or ())
    diff_request(from_seq, node=nodes, match=match)
    return TopicWatch(idle_ms, nodes, match)
