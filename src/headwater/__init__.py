"""Headwater: one durable event log for one machine.

The names below are imported when they are first used: a command that only asks a server
need not load the engine, a server need not load the client, and Spark's executors load
neither.
"""

from typing import TYPE_CHECKING

from headwater.core import errors
from headwater.core.late_names import late_names
from headwater.core.version import __version__

if TYPE_CHECKING:
    from headwater.api.jobs import GiveBackError, Outcome, Stop, WorkDone, WorkOptions
    from headwater.api.keywords import RouterKeywords, TopicKeywords, WorkKeywords
    from headwater.api.machine_requests import ApplyEvent, CreateInstance, DeleteInstance
    from headwater.client import AsyncClient, Client
    from headwater.client.errors import (
        ForbiddenError,
        NoAnswerError,
        PayloadTooLargeError,
        UnauthorizedError,
        UnexpectedAnswerError,
        UnreachableError,
    )
    from headwater.client.retry import Retry
    from headwater.config.engine import EngineSettings
    from headwater.core.errors import (
        AccessError,
        BatchTooLargeError,
        ClosedError,
        ColdTierUnknownError,
        DamageError,
        DataLossError,
        DirectoryInUseError,
        DiskFullError,
        ForeignFileError,
        FormatError,
        HeadConflictError,
        HeadwaterError,
        InvalidPayloadError,
        InvalidRequestError,
        InvariantError,
        NewerFormatError,
        NotAQueueError,
        OverloadedError,
        PoisonedError,
        RecordTooLargeError,
        RequestError,
        RouterCycleError,
        RouterNotFoundError,
        RowsDifferError,
        StaleWriterError,
        StorageError,
        SyncError,
        TopicExistsIncompatibleError,
        TopicFullError,
        TopicNotEmptyError,
        TopicNotFoundError,
        UnavailableError,
        WriteUncertainError,
    )
    from headwater.core.records import Record
    from headwater.core.results import (
        Appended,
        ArrowPage,
        Claimed,
        ClaimedJob,
        Deleted,
        Diff,
        LeaseResult,
        LongWait,
        QueueStats,
        Requeued,
        RouterState,
        Tombstone,
        TopicGone,
        TopicState,
        Trace,
        WaitCount,
        Watched,
    )
    from headwater.engine.async_database import AsyncDatabase
    from headwater.engine.database import Database
    from headwater.engine.opening import open_database as open  # noqa: A004
    from headwater.engine.opening import open_database_async as open_async
    from headwater.engine.read_only import ReadOnlyDatabase
    from headwater.model.machines.errors import MachineError
    from headwater.wire.machine_answers import (
        BadBytes,
        BatchAnswer,
        BatchOneAnswer,
        CompactedAnswer,
        EventAppliedAnswer,
        GapAnswer,
        HistoryAnswer,
        HistoryEntry,
        InstanceAnswer,
        InstanceDeletedAnswer,
        InstanceListAnswer,
        InstanceListed,
        InstanceMadeAnswer,
        InstanceSnapshotAnswer,
        MachineAnswer,
        MachineListAnswer,
        MachineListed,
        MachinePutAnswer,
        MachineResponse,
        MigratedAnswer,
        TransitionAnswer,
        WalEntryAnswer,
        WalIoAnswer,
        WalReadAnswer,
        WalRecord,
        WalStatsAnswer,
    )

__getattr__ = late_names(
    __name__,
    {
        "headwater.api.jobs": ("GiveBackError", "Outcome", "Stop", "WorkDone", "WorkOptions"),
        "headwater.api.keywords": ("RouterKeywords", "TopicKeywords", "WorkKeywords"),
        "headwater.api.machine_requests": ("ApplyEvent", "CreateInstance", "DeleteInstance"),
        "headwater.client": ("AsyncClient", "Client"),
        "headwater.client.errors": (
            "ForbiddenError", "NoAnswerError", "PayloadTooLargeError", "UnauthorizedError",
            "UnexpectedAnswerError", "UnreachableError",
        ),
        "headwater.client.retry": ("Retry",),
        "headwater.config.engine": ("EngineSettings",),
        "headwater.core.errors": (
            "AccessError", "BatchTooLargeError", "ClosedError", "ColdTierUnknownError",
            "DamageError", "DataLossError", "DirectoryInUseError", "DiskFullError",
            "ForeignFileError", "FormatError", "HeadConflictError", "HeadwaterError",
            "InvalidPayloadError", "InvalidRequestError", "InvariantError", "NewerFormatError",
            "NotAQueueError", "OverloadedError", "PoisonedError", "RecordTooLargeError",
            "RequestError", "RouterCycleError", "RouterNotFoundError", "RowsDifferError",
            "StaleWriterError", "StorageError", "SyncError", "TopicExistsIncompatibleError",
            "TopicFullError", "TopicNotEmptyError", "TopicNotFoundError", "UnavailableError",
            "WriteUncertainError",
        ),
        "headwater.core.records": ("Record",),
        "headwater.core.results": (
            "Appended", "ArrowPage", "Claimed", "ClaimedJob", "Deleted", "Diff", "LeaseResult",
            "LongWait", "QueueStats", "Requeued", "RouterState", "Tombstone", "TopicGone",
            "TopicState", "Trace", "WaitCount", "Watched",
        ),
        "headwater.engine.async_database": ("AsyncDatabase",),
        "headwater.engine.database": ("Database",),
        "headwater.engine.opening": {
            "open": "open_database",
            "open_async": "open_database_async",
        },
        "headwater.engine.read_only": ("ReadOnlyDatabase",),
        "headwater.model.machines.errors": ("MachineError",),
        "headwater.wire.machine_answers": (
            "BadBytes", "BatchAnswer", "BatchOneAnswer", "CompactedAnswer", "EventAppliedAnswer",
            "GapAnswer", "HistoryAnswer", "HistoryEntry", "InstanceAnswer",
            "InstanceDeletedAnswer", "InstanceListAnswer", "InstanceListed", "InstanceMadeAnswer",
            "InstanceSnapshotAnswer", "MachineAnswer", "MachineListAnswer", "MachineListed",
            "MachinePutAnswer", "MachineResponse", "MigratedAnswer", "TransitionAnswer",
            "WalEntryAnswer", "WalIoAnswer", "WalReadAnswer", "WalRecord", "WalStatsAnswer",
        ),
    },
)  # fmt: skip

__all__ = [
    "AccessError", "Appended", "ApplyEvent", "ArrowPage", "AsyncClient", "AsyncDatabase",
    "BadBytes", "BatchAnswer", "BatchOneAnswer", "BatchTooLargeError", "Claimed", "ClaimedJob",
    "Client", "ClosedError", "ColdTierUnknownError", "CompactedAnswer", "CreateInstance",
    "DamageError", "DataLossError", "Database", "DeleteInstance", "Deleted", "Diff",
    "DirectoryInUseError", "DiskFullError", "EngineSettings", "EventAppliedAnswer",
    "ForbiddenError", "ForeignFileError", "FormatError", "GapAnswer", "GiveBackError",
    "HeadConflictError", "HeadwaterError", "HistoryAnswer", "HistoryEntry", "InstanceAnswer",
    "InstanceDeletedAnswer", "InstanceListAnswer", "InstanceListed", "InstanceMadeAnswer",
    "InstanceSnapshotAnswer", "InvalidPayloadError", "InvalidRequestError", "InvariantError",
    "LeaseResult", "LongWait", "MachineAnswer", "MachineError", "MachineListAnswer",
    "MachineListed", "MachinePutAnswer", "MachineResponse", "MigratedAnswer", "NewerFormatError",
    "NoAnswerError", "NotAQueueError", "Outcome", "OverloadedError", "PayloadTooLargeError",
    "PoisonedError", "QueueStats", "ReadOnlyDatabase", "Record", "RecordTooLargeError",
    "RequestError", "Requeued", "Retry", "RouterCycleError", "RouterKeywords",
    "RouterNotFoundError", "RouterState", "RowsDifferError", "StaleWriterError", "Stop",
    "StorageError", "SyncError", "Tombstone", "TopicExistsIncompatibleError", "TopicFullError",
    "TopicGone", "TopicKeywords", "TopicNotEmptyError", "TopicNotFoundError", "TopicState", "Trace",
    "TransitionAnswer", "UnauthorizedError", "UnavailableError", "UnexpectedAnswerError",
    "UnreachableError", "WaitCount", "WalEntryAnswer", "WalIoAnswer", "WalReadAnswer", "WalRecord",
    "WalStatsAnswer", "Watched", "WorkDone", "WorkKeywords", "WorkOptions", "WriteUncertainError",
    "__version__", "errors", "open", "open_async",
]  # fmt: skip
