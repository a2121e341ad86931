"""The kafka-python package, imported past its own warnings, which here would be errors."""

from __future__ import annotations

import importlib
import pkgutil
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    import kafka.protocol
    import kafka.record
    from kafka.protocol.api_message import ApiMessage

__all__ = ["kafka", "message_classes"]


def _all_below(kind: Any) -> Iterator[Any]:
    for each in kind.__subclasses__():
        yield each
        yield from _all_below(each)


@cache
def message_classes() -> dict[tuple[int, bool], Any]:
    """Their classes by kind of request, and whether they are of requests."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for module in pkgutil.walk_packages(kafka.protocol.__path__, "kafka.protocol."):
            if ".old" not in module.name and "generate" not in module.name:
                importlib.import_module(module.name)
    return {
        (each.API_KEY, each.is_request()): each
        for each in _all_below(ApiMessage)
        if each._json is not None and each._class_version is None
    }
