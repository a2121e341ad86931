"""Which frames have a body of fixed fields, so that a reader can name them."""

from __future__ import annotations

from typing import Final

from headwater.core.errors import FormatError
from headwater.format.control import HEAD_WATERMARK, IDEMPOTENCY
from headwater.format.frame import Frame, FrameType
from headwater.format.layout import Layout
from headwater.format.mark import COMMIT_MARK
from headwater.format.router_frames import ROUTER_PLACES
from headwater.format.topic_frames import EVICT_WATERMARK

FRAME_BODIES: Final[dict[FrameType, Layout]] = {
    FrameType.EVICT_WATERMARK: EVICT_WATERMARK,
    FrameType.HEAD_WATERMARK: HEAD_WATERMARK,
    FrameType.COMMIT_MARK: COMMIT_MARK,
    FrameType.IDEMPOTENCY: IDEMPOTENCY,
    FrameType.ROUTER_PLACES: ROUTER_PLACES,
}


def body_fields(frame: Frame) -> dict[str, int] | None:
    """The body by field name, or None for a frame whose data is not made of fields."""
    layout = FRAME_BODIES.get(frame.type)
    if layout is None:
        return None
    try:
        return layout.unpack(frame.data) if len(frame.data) == layout.size else None
    except FormatError:
        return None
