"""Instances of a replay beside those of a store that has them in memory: every difference.

The job reads the live state before it reads the log to its end, so the log is never behind it. What
the log has changed since is no difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import msgspec
import pyarrow as pa

from headwater.core.errors import HeadwaterError
from headwater.model.machines.errors import INSTANCE_NOT_FOUND
from headwater.spark.runtime.arrow_schema import batch_of, to_spark
from headwater.wire.machine_requests import LIST_LIMIT_MAX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LISTED_MAX: Final = 1_000
LIVE_DDL: Final = (
    "id string, live_machine string, live_version bigint, live_state string, live_ctx string, "
    "live_offset bigint"
)
_COMPARED: Final = pa.schema(
    [("instance_id", pa.string()), ("what", pa.string()), ("count_", pa.int64())]
)
_COUNTS: Final = ("compared", "changed", "differences")
_FIELDS: Final = ("machine", "version", "state")


class Difference(msgspec.Struct, frozen=True):
    instance_id: str
    what: str


class Checked(msgspec.Struct, frozen=True):
    compared: int = 0
    changed_since: int = 0
    differences: int = 0
    listed: tuple[Difference, ...] = ()


class LiveInstance(NamedTuple):
    id: str
    machine: str
    version: int
    state: str
    ctx: str
    wal_offset: int


class LiveState(NamedTuple):
    """What a store has in memory."""

    end: int
    """Everything before this offset is in it."""
    instances: Sequence[LiveInstance]


class LiveMachines(Protocol):
    """What a client of a server and an open database both have."""

    def wal_stats(self) -> Any: ...

    def list_instances(
        self, machine: str | None, state: str | None, *, limit: int, offset: int
    ) -> Any: ...

    def get_instance(self, instance_id: str) -> Any: ...


def live_state(machines: LiveMachines) -> LiveState:
    """Everything there is now; what comes and goes meanwhile may be missing."""
    end = machines.wal_stats().current_offset
    return LiveState(end, list(_instances(machines)))


def _instances(machines: LiveMachines) -> Iterator[LiveInstance]:
    seen: set[str] = set()
    offset, more = 0, True
    while more:
        page = machines.list_instances(None, None, limit=LIST_LIMIT_MAX, offset=offset)
        offset, more = offset + len(page.instances), page.has_more
        for each in page.instances:
            if each.id in seen:
                continue
            seen.add(each.id)
            try:
                instance = machines.get_instance(each.id)
            except HeadwaterError as error:
                if getattr(error, "code", "") != INSTANCE_NOT_FOUND:
                    raise
                continue  # deleted since it was listed
            yield LiveInstance(
                each.id,
                instance.machine,
                instance.version,
                instance.state,
                msgspec.json.encode(instance.ctx, order="sorted").decode(),
                instance.last_wal_offset,
            )


def check_against(spark: SparkSession, instances: DataFrame, live: LiveState) -> Checked:
    """Join both, and say what is not alike."""
    there = spark.createDataFrame([tuple(each) for each in live.instances], LIVE_DDL)
    joined = instances.join(there, instances.instance_id == there.id, "full_outer")
    rows = joined.mapInArrow(partial(_compare, live.end), to_spark(_COMPARED)).collect()
    totals = dict.fromkeys(_COUNTS, 0)
    listed: list[Difference] = []
    for row in rows:
        if row.instance_id is None:
            totals[row.what] += row.count_
        else:
            listed.append(Difference(row.instance_id, row.what))
    listed.sort(key=lambda each: each.instance_id)
    compared, changed, differences = (totals[name] for name in _COUNTS)
    return Checked(compared, changed, differences, tuple(listed[:LISTED_MAX]))


def _compare(end: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: how many, and what is not alike."""
    compared = changed = 0
    listed: list[tuple[str | None, str, int]] = []
    differences = 0
    for batch in batches:
        for row in batch.to_pylist():
            compared += 1
            what = difference(row, end)
            changed += what is None
            if what:
                differences += 1
                if len(listed) < LISTED_MAX:
                    listed.append((row["instance_id"] or row["id"], what, 0))
    counts = zip(_COUNTS, (compared, changed, differences), strict=True)
    listed += [(None, name, count) for name, count in counts]
    yield batch_of(listed, _COMPARED)


def difference(row: Mapping[str, Any], end: int) -> str | None:
    """What is not alike; empty when all is; None when it was changed since the live state was
    read."""
    if row["instance_id"] is None:
        return f"live in state {row['live_state']!r}, and the log does not know it"
    if row["id"] is None:
        if row["deleted"]:
            return ""
        if row["wal_offset"] >= end:
            return None
        return f"in state {row['state']!r} by the log, and not live"
    if row["wal_offset"] > row["live_offset"]:
        return None if row["wal_offset"] >= end else _offsets(row)
    if row["deleted"] or row["wal_offset"] < row["live_offset"]:
        return _offsets(row)
    wrong = [
        f"{name} is {row[name]!r} by the log and {row[f'live_{name}']!r} live"
        for name in _FIELDS
        if row[name] != row[f"live_{name}"]
    ]
    if msgspec.json.decode(row["ctx"]) != msgspec.json.decode(row["live_ctx"]):
        wrong.append(f"ctx is {row['ctx']} by the log and {row['live_ctx']} live")
    return "; ".join(wrong)


def _offsets(row: Mapping[str, Any]) -> str:
    state = "deleted" if row["deleted"] else "last changed"
    return (
        f"{state} at {row['wal_offset']} by the log and last changed at {row['live_offset']} live"
    )
