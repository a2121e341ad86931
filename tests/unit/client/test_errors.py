"""From an answer to the error it stands for."""

from __future__ import annotations

import pytest

from headwater.client.errors import (
    LATER_ERRORS,
    REQUEST_ERRORS,
    UnexpectedAnswerError,
    error_for,
    error_of,
)
from headwater.core import errors
from headwater.wire.http_errors import STATUS_OF_CODE, error_body, error_headers, status_of


def every_error() -> list[errors.HeadwaterError]:
    all_errors: list[errors.HeadwaterError] = [
        kind("what happened", detail={"a": 1}) for kind in REQUEST_ERRORS.values()
    ]
    all_errors += [kind("later", 3_000, detail={"limit": "x"}) for kind in LATER_ERRORS.values()]
    return [*all_errors, errors.StorageError("broken"), errors.InvariantError("ours")]


@pytest.mark.parametrize("error", every_error(), ids=lambda error: type(error).__name__)
def test_an_error_comes_back_as_what_it_was(error: errors.HeadwaterError) -> None:
    back = error_of(status_of(error), error_headers(error), error_body(error, 0.1))
    assert (type(back), str(back), back.code) == (type(error), str(error), error.code)
    assert back.detail == error.detail
    assert getattr(back, "retry_after_ms", 0) == getattr(error, "retry_after_ms", 0)


@pytest.mark.parametrize("code", STATUS_OF_CODE)
def test_every_code_of_the_contract_becomes_an_error_with_that_code(code: str) -> None:
    status = STATUS_OF_CODE[code]
    error = error_for(code, "message", status=status)
    assert error.code == code
    if status < 500 and status != 429:
        assert isinstance(error, errors.RequestError)


def test_a_code_from_a_newer_server_keeps_its_branch() -> None:
    assert isinstance(error_for("new_mistake", "m", status=409), errors.RequestError)
    assert isinstance(error_for("new_pause", "m", status=503), errors.UnavailableError)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"error":1}', b"\xff\xfe"])
def test_an_answer_of_somebody_else_is_told_as_such(body: bytes) -> None:
    assert isinstance(error_of(404, {}, body), UnexpectedAnswerError)
    assert "answered 404" in str(error_of(404, {}, body))
    away = error_of(502, {"retry-after": "7"}, body)
    assert isinstance(away, errors.UnavailableError)
    assert away.retry_after_ms == 7_000
