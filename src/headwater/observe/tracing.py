"""Spans for programs that have OpenTelemetry set up; without it nothing happens.

The only module that imports the library, which is optional. Spans are recorded after the fact, with
their beginning: nothing has to be carried through queues and threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from headwater.core.units import US_PER_MS, US_PER_S

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

PRODUCE_SPAN: Final = "headwater.produce.store"
"""virtual_topic, record_count, base_offset"""
FETCH_SPAN: Final = "headwater.fetch.read"
"""virtual_topic, fetch_offset, returned_count, high_watermark"""


def _library() -> Any:
    try:
        from opentelemetry import trace
    except ImportError:  # the extra `tracing` is not installed
        return None
    return trace


_trace: Final = _library()
_LIBRARY: Final = "headwater"
_NS_PER_MS: Final = US_PER_MS * 1_000
_REFRESH_US: Final = US_PER_S


class Spans:
    """Where spans go. Without a provider of its own: to the one the program has set up, if any."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._provider = provider
        self.wanted = False
        """False when no provider takes spans: then none is made. As of the last `refresh`."""
        self._next_refresh_us = 0
        self.refresh()

    def refresh(self) -> bool:
        """Check again: the program may set a provider up at any time.

        Takes as long as some of the work that spans measure, so not for each of them.
        """
        if self._provider is not None:
            self.wanted = True
        elif _trace is not None:
            silent = (_trace.ProxyTracerProvider, _trace.NoOpTracerProvider)
            self.wanted = not isinstance(_trace.get_tracer_provider(), silent)
        return self.wanted

    def refresh_if_due(self, now_us: int) -> None:
        """For callers that need it thousands of times a second."""
        if now_us >= self._next_refresh_us:
            self._next_refresh_us = now_us + _REFRESH_US
            self.refresh()

    def record(
        self, name: str, began_ms: int, ended_ms: int, facts: Mapping[str, str | int]
    ) -> None:
        provider = self._provider or _trace.get_tracer_provider()
        tracer = provider.get_tracer(_LIBRARY)
        span = tracer.start_span(name, attributes=dict(facts), start_time=began_ms * _NS_PER_MS)
        span.end(ended_ms * _NS_PER_MS)
