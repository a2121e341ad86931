"""Requests that wait for the log: answered once, counted once, whatever goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from headwater.config.server import LimitSettings
from headwater.core.errors import ClosedError, HeadwaterError
from headwater.engine.operation import Answered, OneStep, Operation, Work
from headwater.engine.owner import Pending
from headwater.server.access.quotas import Usage
from headwater.server.backend import Backend
from headwater.server.operation_runner import OperationRunner

BACKEND = Backend()
Make = Callable[[Callable[[], Pending[Any]], Callable[[Any], str]], Work[str]]


class Noted(OperationRunner[str]):
    """A surface that writes down what it would answer."""

    def __init__(self, usage: Usage, steps: Work[str]) -> None:
        super().__init__(BACKEND, usage, steps)
        self.usage = usage
        self.said: list[tuple[str, object, int]] = []

    def _say(self, what: str, of: object) -> None:
        self.said.append((what, of, self.usage.in_flight))

    def _succeed(self, result: str) -> None:
        self._say("ok", result)

    def _fail(self, error: HeadwaterError) -> None:
        self._say("failed", str(error))

    def _break(self, error: Exception) -> None:
        self._say("broken", repr(error))


def one(start: Callable[[], Pending[Any]], tell: Callable[[Any], str]) -> Work[str]:
    return OneStep(start, tell)


def steps(start: Callable[[], Pending[Any]], tell: Callable[[Any], str]) -> Operation[str]:
    return tell((yield Answered(start)))


@pytest.fixture(params=[one, steps])
def make(request: pytest.FixtureRequest) -> Make:
    return cast("Make", request.param)


@pytest.fixture
def usage() -> Usage:
    return Usage(LimitSettings())


def test_the_answer_of_the_log_is_told_when_it_comes(make: Make, usage: Usage) -> None:
    pending: Pending[int] = Pending()
    noted = Noted(usage, make(lambda: pending, str))
    noted.begin()
    assert (noted.said, usage.in_flight) == ([], 1)
    pending.succeed(7)
    assert noted.said == [("ok", "7", 0)]


def test_an_answer_that_is_there_already_is_told_at_once(make: Make, usage: Usage) -> None:
    pending: Pending[int] = Pending()
    pending.succeed(7)
    noted = Noted(usage, make(lambda: pending, str))
    noted.begin()
    assert noted.said == [("ok", "7", 0)]


def test_what_the_log_refuses_is_told_and_no_longer_counted(make: Make, usage: Usage) -> None:
    pending: Pending[int] = Pending()
    noted = Noted(usage, make(lambda: pending, str))
    noted.begin()
    pending.fail(ClosedError("closed"))
    assert noted.said == [("failed", "closed", 0)]


def test_the_engine_never_hears_of_an_answer_that_cannot_be_told(make: Make, usage: Usage) -> None:
    pending: Pending[int] = Pending()
    noted = Noted(usage, make(lambda: pending, lambda _: str(1 // 0)))
    noted.begin()
    pending.succeed(7)
    ((what, _, counted),) = noted.said
    assert (what, counted) == ("broken", 0)


def test_what_is_refused_at_once_is_raised_and_not_counted(make: Make, usage: Usage) -> None:
    def refuse() -> Pending[Any]:
        raise ClosedError("closed")

    noted = Noted(usage, make(refuse, str))
    with pytest.raises(ClosedError):
        noted.begin()
    assert (noted.said, usage.in_flight) == ([], 0)


def test_a_surface_that_fails_to_answer_does_not_stop_the_engine(make: Make, usage: Usage) -> None:
    class Faulty(Noted):
        def _succeed(self, result: str) -> None:
            raise OSError(result)

    pending: Pending[int] = Pending()
    noted = Faulty(usage, make(lambda: pending, str))
    noted.begin()
    pending.succeed(7)
    assert noted.said == [("broken", "OSError('7')", 0)]
