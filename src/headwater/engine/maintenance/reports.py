"""What `verify`, `doctor` and the pipeline's jobs found last, kept beside the data.

One small file a job, replaced as a whole. They are for people: nothing else depends on them, so
one that cannot be written or read is no failure of the job, and none is kept where a server has
not made the directory for them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Final, NamedTuple

import msgspec

from headwater.core.errors import HeadwaterError
from headwater.core.units import MIB
from headwater.disk import Disk, have_directory, read_whole, replace_file
from headwater.format.names import REPORTS_DIRECTORY

REPORT_BYTES_MAX: Final = 1 * MIB
"""A longer one is kept without its findings."""
_NAME: Final = re.compile(r"([a-z][a-z0-9-]{0,60})\.json")


class KeptReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    job: str
    at_ms: int
    ok: bool
    report: dict[str, Any]


class Reports(NamedTuple):
    kept: list[KeptReport]
    """The newest first."""
    unreadable: list[str]


def make_reports_directory(disk: Disk, directory: PurePath) -> None:
    """Reports about this data directory are kept from now on."""
    path = directory / REPORTS_DIRECTORY
    have_directory(disk, path)


def keep_report(
    disk: Disk, directory: PurePath, job: str, at_ms: int, report: Mapping[str, Any]
) -> bool:
    """Keep what a job found. False when there is no place for it, or it cannot be written."""
    path = directory / REPORTS_DIRECTORY
    name = f"{job}.json"
    assert _NAME.fullmatch(name), job
    kept = KeptReport(job, at_ms, bool(report.get("ok")), dict(report))
    contents = msgspec.json.encode(kept)
    if len(contents) > REPORT_BYTES_MAX:
        short = {key: value for key, value in report.items() if not isinstance(value, list | dict)}
        contents = msgspec.json.encode(KeptReport(job, at_ms, kept.ok, short))
    try:
        if not disk.is_directory(path):
            return False
        replace_file(disk, path / name, contents)
    except (OSError, HeadwaterError):
        return False
    return True


def read_reports(disk: Disk, directory: PurePath) -> Reports:
    path = directory / REPORTS_DIRECTORY
    reports = Reports([], [])
    for name in disk.list_directory(path) if disk.is_directory(path) else []:
        if _NAME.fullmatch(name) is None:
            continue
        try:
            contents = read_whole(disk, path / name, REPORT_BYTES_MAX)
            reports.kept.append(msgspec.json.decode(contents, type=KeptReport))
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            reports.unreadable.append(name)
    reports.kept.sort(key=lambda report: report.at_ms, reverse=True)
    return reports
