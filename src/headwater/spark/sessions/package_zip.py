"""The package itself, sent to executors that may not have it.

Executors run the source, the sink and the jobs, so their Python must be able to import headwater.
On a cluster the session sends a zip of the package as it is installed here, unless
`spark.headwater.ship` is false because it is installed there. The zip is the same, byte for byte,
for the same package, so it is made once and its name says which package it holds.

What the package builds on (numpy, pyarrow, xxhash, msgspec) has machine code in it and cannot be
sent like this: it must be installed for the Python of the executors.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from headwater.core.errors import RequestError
from headwater.disk import PosixDisk
from headwater.disk.cache import cache_directory, write_cached
from headwater.disk.package import package_files
from headwater.format.checksum import checksum64

if TYPE_CHECKING:
    from pyspark import SparkContext

PACKAGE: Final = "headwater"
SETTING: Final = "spark.headwater.ship"
NEEDED_THERE: Final = ("numpy", "pyarrow", "xxhash", "msgspec")
"""Modules the executors' Python must have."""

_SAME_DATE: Final = (1980, 1, 1, 0, 0, 0)
_CHOICES: Final = {"true": True, "false": False}


def ship(context: SparkContext, settings: Mapping[str, str | None], *, has_executors: bool) -> bool:
    """Send the package to the executors if they may lack it. True when it was sent."""
    choice = settings.get(SETTING) or ("true" if has_executors else "false")
    if choice not in _CHOICES:
        raise RequestError(f"{SETTING} is true or false, not {choice!r}")
    if not _CHOICES[choice]:
        return False
    context.addPyFile(str(package_zip()))
    return True


def package_zip() -> PurePath:
    """A zip of the package as it is installed here, in the cache."""
    contents = zip_of(package_files(PACKAGE, ".py"))
    path = cache_directory("package", f"{PACKAGE}-{checksum64(contents):016x}.zip")
    if not PosixDisk().exists(path):
        write_cached(path, contents)
    return path


def zip_of(files: list[tuple[str, bytes]]) -> bytes:
    """The same files always give the same bytes: no dates, no owners, one order."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, contents in files:
            entry = zipfile.ZipInfo(f"{PACKAGE}/{name}", _SAME_DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, contents)
    return packed.getvalue()
