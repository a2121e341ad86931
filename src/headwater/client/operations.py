"""What a client does, written once for threads and for event loops.

As in the engine, each operation is a generator. It yields what it waits for: a request to be sent,
the time, or a pause. A client does that in its own way, and throws errors into the generator.

A write is sent again only while the server is sure to remember its key: after an answer that never
came, the topic's window is looked up first, and half of it is the limit. So a retried write is
never doubled; when that cannot be promised, the caller gets NoAnswerError.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from headwater.api.call_list import StateCall
from headwater.client import calls
from headwater.client.answers import ListPage
from headwater.client.calls import HttpCall, RepeatRule
from headwater.client.errors import ForbiddenError, NoAnswerError, UnauthorizedError, error_of
from headwater.client.retry import Retry, may_retry
from headwater.config.topic import DEFAULT_TOPIC_SETTINGS
from headwater.core.errors import HeadwaterError, TopicNotFoundError

T = TypeVar("T")
DEFAULT_URL: Final = "http://127.0.0.1:4000"
WINDOW_SHARE: Final = 0.5
"""How much of a topic's idempotency window a retry may use up."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_good(self) -> bool:
        return 200 <= self.status < 300


@dataclass(frozen=True, slots=True)
class Send:
    """Send it once. Gives an Answer, or UnreachableError or NoAnswerError is thrown in."""

    call: HttpCall[Any]


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


@dataclass(frozen=True, slots=True)
class Now:
    """Seconds of a clock that never goes back."""


Step = Send | Pause | Now
ClientOperation = Generator[Step, Any, T]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How a client retries, and the source of its random numbers."""

    retry: Retry
    rng: random.Random

    def new_key(self) -> str:
        return f"{self.rng.getrandbits(128):032x}"


def once(call: HttpCall[T]) -> ClientOperation[T]:
    answer: HttpAnswer = yield Send(call)
    if not answer.is_good:
        raise error_of(answer.status, answer.headers, answer.body)
    return call.result(answer.headers, answer.body)


def call_operation(call: HttpCall[T], policy: RetryPolicy) -> ClientOperation[T]:
    started: float = yield Now()
    failures = 0
    in_doubt: NoAnswerError | None = None
    while True:
        try:
            if in_doubt is not None and call.repeat is RepeatRule.WITH_KEY:
                yield from _check_window(call, started, in_doubt)
            return (yield from once(call))
        except HeadwaterError as error:
            if isinstance(error, NoAnswerError):
                if call.repeat is RepeatRule.NEVER or error is in_doubt:
                    raise
                in_doubt = in_doubt or error
            if not may_retry(error):
                raise
            failures += 1
            delay = policy.retry.delay_s(failures, error, policy.rng)
            elapsed = (yield Now()) - started
            if elapsed + delay > policy.retry.give_up_after_s:
                raise in_doubt or error from error
            yield Pause(delay)


def _check_window(
    call: HttpCall[Any], started: float, in_doubt: NoAnswerError
) -> ClientOperation[None]:
    """Raise the old doubt again when the server may have forgotten the key."""
    assert call.topic is not None
    window_ms = DEFAULT_TOPIC_SETTINGS.idempotency_window_ms
    try:
        state = yield from once(calls.get_topic(StateCall(call.topic)))
        window_ms = int(state.config.get("idempotency_window_ms", window_ms))
    except TopicNotFoundError:
        return  # then nothing was written to it, or all of it is gone
    except (ForbiddenError, UnauthorizedError):
        pass  # a key that may only write cannot ask; the default is what most topics have
    elapsed = (yield Now()) - started
    if elapsed * 1_000 >= window_ms * WINDOW_SHARE:
        raise in_doubt


def pages_operation(
    list_page: Callable[[str | None], HttpCall[ListPage[T]]], policy: RetryPolicy
) -> ClientOperation[list[T]]:
    """A whole list, page by page."""
    items: list[T] = []
    cursor: str | None = None
    while True:
        page = yield from call_operation(list_page(cursor), policy)
        items += page.items
        cursor = page.next_cursor
        if cursor is None:
            return items
