"""When a call is sent again: decided without a network, a clock or chance."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from headwater.api.call_list import AppendCall, DeleteCall, DropCall
from headwater.client import calls
from headwater.client.calls import HttpCall
from headwater.client.errors import NoAnswerError, UnreachableError
from headwater.client.operations import (
    ClientOperation,
    HttpAnswer,
    Now,
    Pause,
    RetryPolicy,
    Send,
    call_operation,
)
from headwater.client.retry import Retry
from headwater.core import errors

Reaction = HttpAnswer | errors.HeadwaterError
WRITTEN = HttpAnswer(200, {}, b'{"first_seq":1,"last_seq":1,"head_seq":1}')
STATE = {
    "topic": "a",
    "head_seq": 0,
    "earliest_seq": 1,
    "next_seq": 1,
    "count": 0,
    "bytes": 0,
    "config": {"idempotency_window_ms": 120_000},
}


def refused(status: int, code: str, **headers: str) -> HttpAnswer:
    body = msgspec.json.encode({"error": {"code": code, "message": "no"}})
    return HttpAnswer(
        status, {name.replace("_", "-"): value for name, value in headers.items()}, body
    )


def state(window_ms: int) -> HttpAnswer:
    state = {**STATE, "config": {"idempotency_window_ms": window_ms}}
    return HttpAnswer(200, {}, msgspec.json.encode(state))


class Script:
    """Plays network and clock: reacts to each request as written down, and lets time jump."""

    def __init__(self, *reactions: Reaction, each_takes_s: float = 0.0) -> None:
        self.reactions = list(reactions)
        self.sent: list[HttpCall[Any]] = []
        self.pauses: list[float] = []
        self.now = 0.0
        self.each_takes_s = each_takes_s

    def run(self, operation: ClientOperation[Any]) -> Any:
        result: Any = None
        error: errors.HeadwaterError | None = None
        try:
            while True:
                step = operation.send(result) if error is None else operation.throw(error)
                result, error = None, None
                if isinstance(step, Send):
                    self.sent.append(step.call)
                    self.now += self.each_takes_s
                    reaction = self.reactions.pop(0)
                    if isinstance(reaction, HttpAnswer):
                        result = reaction
                    else:
                        error = reaction
                elif isinstance(step, Pause):
                    self.pauses.append(step.seconds)
                    self.now += step.seconds
                else:
                    assert isinstance(step, Now)
                    result = self.now
        except StopIteration as done:
            return done.value

    @property
    def methods(self) -> list[str]:
        return [call.method for call in self.sent]


def policy(**options: float) -> RetryPolicy:
    return RetryPolicy(Retry(**options), random.Random(7))


def write() -> HttpCall[Any]:
    return calls.append(AppendCall("a", {"data": 1}, None, "key", None, None, None, False))


GONE = UnreachableError("away")


def lost() -> NoAnswerError:
    return NoAnswerError("no answer")


def test_a_write_that_met_no_server_is_sent_again_as_it_was() -> None:
    script = Script(GONE, GONE, WRITTEN)
    assert script.run(call_operation(write(), policy())).first_seq == 1
    assert script.methods == ["POST", "POST", "POST"]
    assert len({call.body for call in script.sent}) == 1, "the key is the same every time"


def test_waits_grow_and_are_spread_and_bounded() -> None:
    script = Script(*[GONE] * 12, WRITTEN)
    script.run(call_operation(write(), policy(first_delay_s=0.1, longest_delay_s=2.0)))
    bounds = [min(2.0, 0.1 * 2**n) for n in range(12)]
    assert all(
        bound / 2 <= pause <= bound for pause, bound in zip(script.pauses, bounds, strict=True)
    )
    assert len(set(script.pauses)) == 12


def test_two_clients_do_not_wait_alike() -> None:
    pauses = []
    for seed in (1, 2):
        script = Script(GONE, WRITTEN)
        script.run(call_operation(write(), RetryPolicy(Retry(), random.Random(seed))))
        pauses += script.pauses
    assert pauses[0] != pauses[1]


@pytest.mark.parametrize(("status", "code"), [(429, "throttled"), (503, "not_ready")])
def test_the_server_is_given_the_time_it_asks_for(status: int, code: str) -> None:
    script = Script(refused(status, code, retry_after="3"), WRITTEN)
    script.run(call_operation(write(), policy()))
    assert 3.0 <= script.pauses[0] <= 4.0


@pytest.mark.parametrize(
    ("status", "code"),
    [(409, "head_conflict"), (507, "disk_full"), (503, "storage_failed"), (500, "internal")],
)
def test_what_trying_again_cannot_mend_is_told_at_once(status: int, code: str) -> None:
    script = Script(refused(status, code))
    with pytest.raises(errors.HeadwaterError) as caught:
        script.run(call_operation(write(), policy()))
    assert caught.value.code == code
    assert script.pauses == []


def test_after_the_time_allowed_the_last_error_is_raised() -> None:
    script = Script(*[GONE] * 100)
    with pytest.raises(UnreachableError):
        script.run(call_operation(write(), policy(give_up_after_s=10.0)))
    assert 5.0 < script.now <= 10.0


def test_a_write_without_an_answer_is_repeated_while_its_key_is_remembered() -> None:
    script = Script(lost(), state(120_000), WRITTEN)
    script.run(call_operation(write(), policy()))
    assert script.methods == ["POST", "GET", "POST"]


@pytest.mark.parametrize(
    ("reaction", "repeated"),
    [
        (state(0), False),
        (state(9_000), False),
        (state(60_000), True),
        (refused(404, "topic_not_found"), True),
        (refused(403, "forbidden"), True),
    ],
    ids=["no window", "short window", "long window", "no topic", "may not ask"],
)
def test_the_window_of_the_topic_decides_whether_a_doubtful_write_is_repeated(
    reaction: HttpAnswer, repeated: bool
) -> None:
    script = Script(lost(), reaction, WRITTEN, each_takes_s=5.0)
    operation = call_operation(write(), policy())
    if repeated:
        script.run(operation)
        assert script.methods == ["POST", "GET", "POST"]
    else:
        with pytest.raises(NoAnswerError):
            script.run(operation)
        assert script.methods == ["POST", "GET"]


def test_doubt_outlives_the_server_that_then_cannot_be_reached() -> None:
    """The first attempt may have been written, so "never sent" would be a lie."""
    script = Script(lost(), *[GONE] * 100)
    with pytest.raises(NoAnswerError):
        script.run(call_operation(write(), policy(give_up_after_s=5.0)))


@pytest.mark.parametrize(
    "make",
    [lambda: calls.drop(DropCall("a", False)), lambda: calls.delete(DeleteCall("a", None, "x*"))],
    ids=["drop", "delete by tag"],
)
def test_what_twice_is_not_once_is_never_repeated_in_doubt(
    make: Callable[[], HttpCall[Any]],
) -> None:
    script = Script(lost())
    with pytest.raises(NoAnswerError):
        script.run(call_operation(make(), policy()))
    again = Script(GONE, HttpAnswer(200, {}, b'{"deleted":true}'))
    if make().method == "DELETE":
        assert again.run(call_operation(make(), policy())) is True


def test_a_delete_below_a_seq_is_repeated_in_doubt() -> None:
    done = b'{"deleted":1,"earliest_seq":2,"head_seq":2,"count":1,"bytes":1}'
    script = Script(lost(), HttpAnswer(200, {}, done))
    assert script.run(call_operation(calls.delete(DeleteCall("a", 2, None)), policy())).deleted == 1
    assert script.methods == ["POST", "POST"]
