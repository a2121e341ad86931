"""Spans for whoever has OpenTelemetry set up; for everybody else nothing happens.

The only module that imports the library, which is optional. Spans are told after the fact, with
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
_LOOK_EVERY_US: Final = US_PER_S


class Spans:
    """Where spans go. Without a provider of its own: to the one the program has set up, if any."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._provider = provider
        self.wanted = False
        """False when nobody would see a span: then none is made. As of the last `look`."""
        self._next_look_us = 0
        self.look()

    def look(self) -> bool:
        """Find out again: the program may set a provider up at any time.

        Takes as long as some of the work that spans tell about, so not for each of them.
        """
        if self._provider is not None:
            self.wanted = True
        elif _trace is not None:
            silent = (_trace.ProxyTracerProvider, _trace.NoOpTracerProvider)
            self.wanted = not isinstance(_trace.get_tracer_provider(), silent)
        return self.wanted

    def look_now_and_then(self, now_us: int) -> None:
        """For those who ask thousands of times a second."""
        if now_us >= self._next_look_us:
            self._next_look_us = now_us + _LOOK_EVERY_US
            self.look()

    def tell(self, name: str, began_ms: int, ended_ms: int, facts: Mapping[str, str | int]) -> None:
        provider = self._provider or _trace.get_tracer_provider()
        tracer = provider.get_tracer(_LIBRARY)
        span = tracer.start_span(name, attributes=dict(facts), start_time=began_ms * _NS_PER_MS)
        span.end(ended_ms * _NS_PER_MS)
