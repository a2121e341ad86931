"""Every error has the code that programs look at."""

from __future__ import annotations

import pytest

from headwater.core import errors

CODES = {
    errors.RequestError: "invalid_request",
    errors.InvalidRequestError: "invalid_request",
    errors.BatchTooLargeError: "batch_too_large",
    errors.RecordTooLargeError: "record_too_large",
    errors.TopicNotFoundError: "topic_not_found",
    errors.TopicExistsIncompatibleError: "topic_exists_incompatible",
    errors.TopicNotEmptyError: "topic_not_empty",
    errors.TopicFullError: "topic_full",
    errors.HeadConflictError: "head_conflict",
    errors.NotAQueueError: "not_a_queue",
    errors.UnavailableError: "not_ready",
    errors.OverloadedError: "throttled",
    errors.DiskFullError: "disk_full",
    errors.ClosedError: "shutting_down",
    errors.StorageError: "storage_failed",
    errors.PoisonedError: "storage_failed",
    errors.DamageError: "storage_failed",
    errors.InvariantError: "internal",
}


@pytest.mark.parametrize(("kind", "code"), CODES.items())
def test_each_kind_of_error_keeps_its_code(kind: type[errors.HeadwaterError], code: str) -> None:
    raised = kind("something happened")
    assert raised.code == code
    assert raised.detail is None
    assert "something happened" in str(raised)


def test_facts_of_a_refusal_are_there_by_name() -> None:
    assert errors.TopicFullError("full", detail={"count": 3}).detail == {"count": 3}
    throttled = errors.OverloadedError("busy", 50, detail={"limit": "topics"})
    assert (throttled.retry_after_ms, throttled.detail) == (50, {"limit": "topics"})
