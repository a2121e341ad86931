"""Where a data directory's cold tier is, remembered in the directory itself.

A server that is given a cold tier writes its address down, so that `headwater verify` finds the
frames of cold segments later without being given it again. Only the address: keys stay where the
server has them. The file is a hint and never decides anything for a server.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec

from headwater.core.errors import UnavailableError
from headwater.disk import Disk, PosixDisk, read_whole, replace_file, sync_names
from headwater.format.names import COLD_ADDRESS_NAME
from headwater.format.snapshot import META_DIRECTORY
from headwater.store.object_store import RETRY_AFTER_MS, URL_START, open_cold_tier, shown_address
from headwater.store.segment_stores import ColdTier

_VERSION: Final = 1
_BYTES_MAX: Final = 64 * 1024
_HARMLESS: Final = frozenset(
    {"region", "endpoint_override", "scheme", "force_virtual_addressing", "connect_timeout"}
)
"""Settings of a URL that say where a store is. Every other one may be a secret."""


class ColdAddress(msgspec.Struct, frozen=True):
    version: int
    address: str = msgspec.field(name="place")


def without_credentials(address: str) -> str:
    """The address of a cold tier with nothing in it that opens it."""
    if "://" not in address:
        return address
    parts = urlsplit(address)
    settings = [pair for pair in parse_qsl(parts.query) if pair[0] in _HARMLESS]
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, urlencode(settings), ""))


def remember_cold_tier(disk: Disk, directory: PurePath, address: str) -> None:
    """Write the address down, durably, unless it is there."""
    if "://" not in address and isinstance(disk, PosixDisk):
        address = disk.absolute(address)  # its reader may run in another directory
    address = without_credentials(address)
    if remembered_cold_tier(disk, directory) == address:
        return
    meta = directory / META_DIRECTORY
    if not disk.is_directory(meta):
        disk.make_directory(meta)
        sync_names(disk, directory)
    contents = msgspec.json.encode(ColdAddress(_VERSION, address)) + b"\n"
    replace_file(disk, meta / COLD_ADDRESS_NAME, contents)


def remembered_cold_tier(disk: Disk, directory: PurePath) -> str | None:
    """The address that was written down last; None when there is none that can be read."""
    path = directory / META_DIRECTORY / COLD_ADDRESS_NAME
    try:
        remembered = msgspec.json.decode(read_whole(disk, path, _BYTES_MAX), type=ColdAddress)
    except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return remembered.address if remembered.version == _VERSION else None


def find_cold_tier(disk: Disk, address: str) -> ColdTier:
    """The tier at an address, to be read only: nothing is made that is not there.

    A tier without a single topic is refused too, because a volume that is not mounted looks so.
    """
    root = PurePath(address)
    if not address.startswith(URL_START) and "://" not in address and not disk.is_directory(root):
        raise UnavailableError(f"there is no directory {address}", RETRY_AFTER_MS)
    tier = open_cold_tier(disk, address)
    if not tier.topic_ids():
        raise UnavailableError(
            f"nothing is in {shown_address(address)}; is it the right place, and is it mounted?",
            RETRY_AFTER_MS,
        )
    return tier
