"""The document names every reason that a tombstone of a topic can have."""

from __future__ import annotations

from typing import get_args

from headwater.engine.kafka.partition_reads import LOG_START
from headwater.model.loss import DAMAGED, EVERY_LOSS, RECREATED
from headwater.server.http.openapi import openapi_document
from headwater.server.routes import every_route
from headwater.wire.answers import GapReason


def test_every_reason_of_a_tombstone_is_in_the_document() -> None:
    given = {loss.word for loss in EVERY_LOSS[1:]} | {RECREATED, DAMAGED, LOG_START}
    assert given == set(get_args(GapReason))
    gap = openapi_document(every_route())["components"]["schemas"]["Gap"]
    assert set(gap["properties"]["reason"]["enum"]) == given
