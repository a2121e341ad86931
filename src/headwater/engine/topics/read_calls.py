"""Calls that read, as requests of a topic: for an owner, and for a view beside one."""

from __future__ import annotations

from headwater.api.call_list import ARROW_ROWS_MAX, ArrowCall, DiffCall
from headwater.core.results import ArrowPage
from headwater.engine.operation import Operation
from headwater.engine.topics.arrow import arrow_operation
from headwater.engine.topics.operations import DiffRequest, diff_request
from headwater.engine.topics.protocols import ReadSide


def request_of(call: DiffCall) -> DiffRequest:
    return diff_request(
        call.from_seq, call.limit, call.max_batch_bytes, call.wait_ms, call.node, call.match
    )


def arrow_page_operation(engine: ReadSide, call: ArrowCall) -> Operation[ArrowPage]:
    from_seq, to_seq = max(call.from_seq, 0), max(call.to_seq, 0)
    rows_max = min(max(call.limit, 1), ARROW_ROWS_MAX)
    page = yield from arrow_operation(engine, call.topic, from_seq, to_seq, rows_max)
    return ArrowPage(b"".join(page.parts), *page[1:])
