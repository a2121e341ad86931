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
    from headwater.core.records import Record
    from headwater.core.results import (
        Appended,
        ArrowPage,
        Claimed,
        ClaimedJob,
        Deleted,
        Diff,
        LeaseResult,
        QueueStats,
        Requeued,
        RouterState,
        Tombstone,
        TopicGone,
        TopicState,
        Watched,
    )
    from headwater.engine.async_database import AsyncDatabase
    from headwater.engine.database import Database
    from headwater.engine.opening import open_database as open  # noqa: A004
    from headwater.engine.opening import open_database_async as open_async
    from headwater.engine.read_only import ReadOnlyDatabase

__getattr__ = late_names(
    __name__,
    {
        "Appended": "headwater.core.results:Appended",
        "ApplyEvent": "headwater.api.machine_requests:ApplyEvent",
        "ArrowPage": "headwater.core.results:ArrowPage",
        "AsyncClient": "headwater.client:AsyncClient",
        "AsyncDatabase": "headwater.engine.async_database:AsyncDatabase",
        "Claimed": "headwater.core.results:Claimed",
        "ClaimedJob": "headwater.core.results:ClaimedJob",
        "Client": "headwater.client:Client",
        "CreateInstance": "headwater.api.machine_requests:CreateInstance",
        "Database": "headwater.engine.database:Database",
        "DeleteInstance": "headwater.api.machine_requests:DeleteInstance",
        "Deleted": "headwater.core.results:Deleted",
        "Diff": "headwater.core.results:Diff",
        "EngineSettings": "headwater.config.engine:EngineSettings",
        "ForbiddenError": "headwater.client.errors:ForbiddenError",
        "GiveBackError": "headwater.api.jobs:GiveBackError",
        "LeaseResult": "headwater.core.results:LeaseResult",
        "NoAnswerError": "headwater.client.errors:NoAnswerError",
        "Outcome": "headwater.api.jobs:Outcome",
        "PayloadTooLargeError": "headwater.client.errors:PayloadTooLargeError",
        "QueueStats": "headwater.core.results:QueueStats",
        "ReadOnlyDatabase": "headwater.engine.read_only:ReadOnlyDatabase",
        "Record": "headwater.core.records:Record",
        "Requeued": "headwater.core.results:Requeued",
        "Retry": "headwater.client.retry:Retry",
        "RouterState": "headwater.core.results:RouterState",
        "Stop": "headwater.api.jobs:Stop",
        "Tombstone": "headwater.core.results:Tombstone",
        "TopicGone": "headwater.core.results:TopicGone",
        "TopicState": "headwater.core.results:TopicState",
        "UnauthorizedError": "headwater.client.errors:UnauthorizedError",
        "UnexpectedAnswerError": "headwater.client.errors:UnexpectedAnswerError",
        "UnreachableError": "headwater.client.errors:UnreachableError",
        "Watched": "headwater.core.results:Watched",
        "WorkDone": "headwater.api.jobs:WorkDone",
        "WorkOptions": "headwater.api.jobs:WorkOptions",
        "open": "headwater.engine.opening:open_database",
        "open_async": "headwater.engine.opening:open_database_async",
    },
)

__all__ = [
    "Appended",
    "ApplyEvent",
    "ArrowPage",
    "AsyncClient",
    "AsyncDatabase",
    "Claimed",
    "ClaimedJob",
    "Client",
    "CreateInstance",
    "Database",
    "DeleteInstance",
    "Deleted",
    "Diff",
    "EngineSettings",
    "ForbiddenError",
    "GiveBackError",
    "LeaseResult",
    "NoAnswerError",
    "Outcome",
    "PayloadTooLargeError",
    "QueueStats",
    "ReadOnlyDatabase",
    "Record",
    "Requeued",
    "Retry",
    "RouterState",
    "Stop",
    "Tombstone",
    "TopicGone",
    "TopicState",
    "UnauthorizedError",
    "UnexpectedAnswerError",
    "UnreachableError",
    "Watched",
    "WorkDone",
    "WorkOptions",
    "__version__",
    "errors",
    "open",
    "open_async",
]
