"""What the name of a Spark master says: is the work done on this machine, and on how many cores?"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from headwater.core.errors import RequestError

_LOCAL: Final = re.compile(r"local(?:\[(\*|\d+)(?:,\s*\d+)?\])?")
_LOCAL_CLUSTER: Final = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\]")
_ELSEWHERE: Final = re.compile(r"spark://\S+|yarn|k8s://\S+|mesos://\S+")
_LOOPBACK_NAMES: Final = frozenset(("localhost", "127.0.0.1", "::1"))


@dataclass(frozen=True, slots=True)
class Master:
    name: str
    on_this_machine: bool
    """Every executor is here, so that nothing needs to be reached from elsewhere."""
    in_this_process: bool
    """There are no executors of their own: no package has to be sent anywhere."""
    cores: int | None
    """How many tasks run at once, where the name says so."""


def parse_master(name: str) -> Master:
    """What `name` means, or an error that shows what may be written."""
    local = _LOCAL.fullmatch(name)
    if local is not None:
        threads = local[1] or "1"
        return Master(name, True, True, _cores() if threads == "*" else int(threads))
    cluster = _LOCAL_CLUSTER.fullmatch(name)
    if cluster is not None:
        return Master(name, True, False, int(cluster[1]) * int(cluster[2]))
    if _ELSEWHERE.fullmatch(name) is None:
        raise RequestError(
            f"{name!r} is no Spark master; write local[*], local[4], spark://HOST:PORT, yarn "
            "or k8s://URL"
        )
    hosts = name.removeprefix("spark://").split(",") if name.startswith("spark://") else []
    here = bool(hosts) and all(
        urlsplit(f"spark://{host}").hostname in _LOOPBACK_NAMES for host in hosts
    )
    return Master(name, here, False, None)


def _cores() -> int:
    return len(os.sched_getaffinity(0))
