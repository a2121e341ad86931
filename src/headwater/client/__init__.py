"""What users import: blocking and awaitable clients of a server, with retries and typed errors."""

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
from headwater.client.watching import TopicGone, Watched

__all__ = [
    "AsyncClient",
    "Client",
    "ForbiddenError",
    "NoAnswerError",
    "PayloadTooLargeError",
    "Retry",
    "TopicGone",
    "UnauthorizedError",
    "UnexpectedAnswerError",
    "UnreachableError",
    "Watched",
]
