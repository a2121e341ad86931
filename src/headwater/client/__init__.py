"""What users import: blocking and awaitable clients of a server, with retries and typed errors."""

from headwater.api.jobs import GiveBackError, Outcome, Stop, WorkDone, WorkOptions
from headwater.api.jobs import WorkOptions as WorkWishes  # the old name, for one release
from headwater.client.asynchronous import AsyncClient
from headwater.client.blocking import Client
from headwater.client.errors import (
    ForbiddenError,
    NoAnswerError,
    PayloadTooLargeError,
    UnauthorizedError,
    UnexpectedAnswerError,
    UnreachableError,
)
from headwater.client.retry import Retry
from headwater.core.results import Appended, TopicGone, TopicState, Watched

__all__ = [
    "Appended",
    "AsyncClient",
    "Client",
    "ForbiddenError",
    "GiveBackError",
    "NoAnswerError",
    "Outcome",
    "PayloadTooLargeError",
    "Retry",
    "Stop",
    "TopicGone",
    "TopicState",
    "UnauthorizedError",
    "UnexpectedAnswerError",
    "UnreachableError",
    "Watched",
    "WorkDone",
    "WorkOptions",
    "WorkWishes",
]
