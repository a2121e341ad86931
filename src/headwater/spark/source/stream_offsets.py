"""How far a stream has come: for each topic its epoch and the last seq that was read.

Spark keeps offsets as text and compares them as text, so the keys are always in the same order.
A topic enters with the seq it is read from, before a record of it is, so that a
batch that is run again reads the same seqs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from headwater.core.errors import RequestError

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class TopicCursor:
    epoch: int
    seq: int


Cursors = Mapping[str, TopicCursor]


def encode_offset(cursors: Cursors) -> dict[str, Any]:
    topics = {
        name: {"epoch": cursors[name].epoch, "seq": cursors[name].seq} for name in sorted(cursors)
    }
    return {"topics": topics, "version": VERSION}


def decode_offset(offset: Any) -> dict[str, TopicCursor]:
    try:
        version = int(offset["version"])
        if version > VERSION:
            raise RequestError(
                f"the checkpoint was written by a newer Headwater (offset version {version}); "
                "use that one, or another checkpoint"
            )
        return {
            str(name): TopicCursor(int(cursor["epoch"]), int(cursor["seq"]))
            for name, cursor in offset["topics"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RequestError(
            f"the checkpoint holds an offset that is none of this source: {str(offset)[:120]!r}; "
            "was it written by another query?"
        ) from error


def share(lags: Mapping[str, int], limit: int) -> dict[str, int]:
    """How many records of each topic go into a batch of at most `limit`.

    By lag, so that all of them arrive at their ends together; none that waits is left out as long
    as there is one record for each.
    """
    total = sum(lags.values())
    if total <= limit:
        return dict(lags)
    waiting = sorted((name for name, lag in lags.items() if lag), key=lambda name: -lags[name])
    shares = dict.fromkeys(lags, 0)
    for name in waiting[:limit]:
        shares[name] = 1
    left = limit - min(limit, len(waiting))
    for name in waiting[:limit]:
        more = min(limit * lags[name] // total - 1, lags[name] - 1, left)
        if more > 0:
            shares[name] += more
            left -= more
    for name in waiting[:limit]:
        more = min(lags[name] - shares[name], left)
        shares[name] += more
        left -= more
    return shares
