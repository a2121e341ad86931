"""From results of the machine store to the responses of the API, embedded and over the network
alike.

Contexts, payloads and definitions are JSON bytes here. `Raw` puts them into an answer as they are;
`decode_content` makes objects of them, for callers in this process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from headwater.core.errors import HeadwaterError
from headwater.engine.machines import answers, operations
from headwater.engine.machines.host import MachineSide
from headwater.engine.machines.log_reader import History, InstanceHistoryEntry, WalPage
from headwater.engine.machines.store import MachineStore
from headwater.engine.machines.watchers import TransitionEvent
from headwater.engine.operation import Operation
from headwater.format.machines.bodies import (
    ApplyEventEntry,
    CreateInstanceEntry,
    DeleteInstanceEntry,
)
from headwater.format.machines.entry import EntryType
from headwater.model.machines.errors import machine_code
from headwater.model.machines.instance import Instance
from headwater.wire import machine_answers as wire

Content = Callable[[bytes], Any]
_raw: Content = msgspec.Raw
decode_content: Content = msgspec.json.Decoder().decode
ENTRY_NAMES: Final = {
    EntryType.PUT_MACHINE: "PutMachine",
    EntryType.CREATE_INSTANCE: "CreateInstance",
    EntryType.APPLY_EVENT: "ApplyEvent",
    EntryType.DELETE_INSTANCE: "DeleteInstance",
    EntryType.SNAPSHOT: "Snapshot",
    EntryType.CHECKPOINT: "Checkpoint",
}
RECORD_TYPES: Final = {
    "PutMachine": "put_machine",
    "CreateInstance": "create_instance",
    "ApplyEvent": "apply_event",
    "DeleteInstance": "delete_instance",
    "Snapshot": "snapshot",
    "Checkpoint": "checkpoint",
}
"""What the published clients call them."""
ALSO_NAMED: Final = {
    "PutMachine": (("definition_hash", "checksum"),),
    "CreateInstance": (("initial_state", "state"),),
    "Snapshot": (("snapshot_id", "snapshot"),),
    "Checkpoint": (("timestamp", "at"),),
}
"""Names of fields in published clients, and here."""


class _Named(msgspec.Struct):
    """The fields that have two names."""

    checksum: str = ""
    state: str = ""
    snapshot: str = ""
    at: int = 0


_named: Final = msgspec.json.Decoder(_Named).decode
_encode: Final = msgspec.json.Encoder().encode
KIND_NAMES: Final[dict[type, str]] = {
    CreateInstanceEntry: "CreateInstance",
    ApplyEventEntry: "ApplyEvent",
    DeleteInstanceEntry: "DeleteInstance",
}


def put(answer: answers.MachinePut) -> wire.MachinePutAnswer:
    return wire.MachinePutAnswer(answer.machine, answer.version, answer.checksum, answer.created)


def machine(answer: answers.MachineVersion, content: Content = _raw) -> wire.MachineAnswer:
    definition = content(answer.definition)
    return wire.MachineAnswer(answer.machine, answer.version, definition, answer.checksum)


def machines(listed: list[answers.MachineVersions]) -> wire.MachineListAnswer:
    return wire.MachineListAnswer(
        [wire.MachineListed(each.machine, list(each.versions), each.latest) for each in listed]
    )


def created(answer: answers.Created) -> wire.InstanceMadeAnswer:
    offset = answer.wal_offset
    return wire.InstanceMadeAnswer(
        answer.instance_id,
        answer.machine,
        answer.version,
        answer.state,
        offset,
        str(offset),
        answer.applied,
    )


def instance(current: Instance, content: Content = _raw) -> wire.InstanceAnswer:
    offset = current.last_wal_offset
    return wire.InstanceAnswer(
        current.id,
        current.machine,
        current.version,
        current.state,
        content(current.ctx),
        offset,
        str(offset),
        current.created_at,
        current.updated_at,
        current.last_event_id,
        current.expires_at or None,
        current.doubtful,
    )


def instances(listed: answers.InstancesListed) -> wire.InstanceListAnswer:
    return wire.InstanceListAnswer(
        [
            wire.InstanceListed(
                each.id,
                each.machine,
                each.version,
                each.state,
                each.created_at,
                each.updated_at,
                each.last_wal_offset,
                str(each.last_wal_offset),
            )
            for each in listed.instances
        ],
        listed.total,
        listed.has_more,
    )


def applied(answer: answers.Applied, content: Content = _raw) -> wire.EventAppliedAnswer:
    offset = answer.wal_offset
    return wire.EventAppliedAnswer(
        answer.instance_id,
        answer.from_state,
        answer.to_state,
        content(answer.ctx),
        offset,
        str(offset),
        answer.applied,
        answer.event_id,
    )


def migrated(answer: answers.Applied) -> wire.MigratedAnswer:
    offset = answer.wal_offset
    return wire.MigratedAnswer(
        answer.instance_id,
        answer.machine,
        answer.version,
        answer.from_state,
        answer.to_state,
        offset,
        str(offset),
    )


def deleted(answer: answers.DeletedInstance) -> wire.InstanceDeletedAnswer:
    offset = answer.wal_offset
    return wire.InstanceDeletedAnswer(answer.instance_id, True, offset, str(offset), answer.applied)


def batch(done: answers.BatchDone, content: Content = _raw) -> wire.BatchAnswer:
    results = [_outcome(outcome, content) for outcome in done.outcomes]
    good = sum(each.status == "ok" for each in results)
    return wire.BatchAnswer(results, good, len(results) - good)


def _outcome(outcome: answers.OperationOutcome, content: Content) -> wire.BatchOneAnswer:
    if outcome.error is not None:
        return wire.BatchOneAnswer("error", error=error(outcome.error))
    answer = outcome.answer
    result: Any = None
    if isinstance(answer, answers.Applied):
        result = applied(answer, content)
    elif isinstance(answer, answers.Created):
        result = created(answer)
    elif isinstance(answer, answers.DeletedInstance):
        result = deleted(answer)
    elif isinstance(answer, Instance):
        result = instance(answer, content)
    elif isinstance(answer, answers.Pong):
        result = answer._asdict()
    return wire.BatchOneAnswer("ok", result=result)


def error(problem: HeadwaterError) -> dict[str, Any]:
    code, retryable = machine_code(problem)
    return {
        "code": code,
        "message": str(problem),
        "retryable": retryable,
        "details": dict(problem.detail or {}),
    }


def stats(current: answers.WalStats) -> wire.WalStatsAnswer:
    return wire.WalStatsAnswer(
        current.entry_count,
        current.segment_count,
        current.total_size_bytes,
        current.current_offset,
        str(current.current_offset),
        current.latest_offset,
        current.oldest_segment,
        current.newest_segment,
        current.damaged_entries,
        current.state,
        wire.WalIoAnswer(
            current.bytes_written, current.bytes_read, current.writes, current.reads, current.fsyncs
        ),
    )


def compact_operation(engine: MachineSide) -> Operation[wire.CompactedAnswer]:
    """Compact, and count what is there afterwards."""
    done = yield from operations.compact_operation(engine)
    left = yield from operations.query_operation(engine, MachineStore.wal_stats)
    snapshots = yield from operations.snapshot_count_operation(engine)
    return _compacted(done, snapshots, left.segment_count)


def _compacted(done: answers.Compacted, snapshots: int, segments: int) -> wire.CompactedAnswer:
    return wire.CompactedAnswer(
        done.snapshot,
        done.snapshot_bytes,
        done.instance_count,
        done.wal_offset,
        str(done.wal_offset),
        done.segments_deleted,
        done.bytes_reclaimed,
        1,
        snapshots,
        segments,
    )


def history(instance_id: str, current: History, content: Content = _raw) -> wire.HistoryAnswer:
    return wire.HistoryAnswer(
        instance_id,
        [_entry(each, content) for each in current.entries],
        current.complete,
        current.doubtful,
        None if current.gone_before is None else str(current.gone_before),
        None if current.damaged_at is None else str(current.damaged_at),
    )


def _entry(entry: InstanceHistoryEntry, content: Content) -> wire.HistoryEntry:
    body = entry.body
    made = wire.HistoryEntry(
        entry.offset, str(entry.offset), KIND_NAMES[type(body)], body.at, version=body.version
    )
    if isinstance(body, ApplyEventEntry):
        made.event, made.event_id = body.event, body.event_id
        made.from_state, made.to_state = body.from_state, body.to_state
        made.payload = content(bytes(body.payload)) if body.payload else None
    elif isinstance(body, CreateInstanceEntry):
        made.to_state, made.payload = body.state, content(bytes(body.initial_ctx))
    else:
        made.from_state, made.reason = body.state, body.reason
    return made


def entries(page: WalPage, content: Content = _raw) -> wire.WalReadAnswer:
    return wire.WalReadAnswer(
        [
            wire.WalEntryAnswer(
                each.offset,
                str(each.offset),
                each.sequence,
                ENTRY_NAMES[each.kind],
                content(each.payload),
            )
            for each in page.entries
        ],
        page.next_offset,
        str(page.next_offset),
        page.has_more,
        str(page.gone_before),
        [wire.BadBytes(str(each.offset), str(each.resume)) for each in page.damaged],
    )


def with_records(page: wire.WalReadAnswer) -> wire.WalReadAnswer:
    """The same with the entries as the published clients read them, too."""
    page.records = [
        wire.WalRecord(each.sequence, each.offset, _as_one_object(each.type, bytes(each.data)))
        for each in page.entries
    ]
    return page


def _as_one_object(name: str, payload: bytes) -> Any:
    """`type` first, then the entry's own fields, and those that clients know by another name."""
    kind = RECORD_TYPES[name]
    try:
        known = _named(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return {"type": kind}
    more = {"type": kind}
    for theirs, ours in ALSO_NAMED.get(name, ()):
        more[theirs] = getattr(known, ours)
    return msgspec.Raw(_encode(more)[:-1] + b"," + payload.lstrip()[1:])


def one_snapshot(made: answers.InstanceSnapshot) -> wire.InstanceSnapshotAnswer:
    return wire.InstanceSnapshotAnswer(
        made.snapshot,
        made.instance_id,
        made.state,
        made.wal_offset,
        str(made.wal_offset),
        made.size_bytes,
        made.checksum,
    )


def transition(event: TransitionEvent, content: Content = _raw) -> wire.TransitionAnswer:
    return wire.TransitionAnswer(
        event.instance_id,
        event.machine,
        event.version,
        event.event,
        event.from_state,
        event.to_state,
        event.at,
        event.wal_offset,
        str(event.wal_offset),
        None if event.payload is None else content(event.payload),
        event.event_id,
        None if event.ctx is None else content(event.ctx),
    )
