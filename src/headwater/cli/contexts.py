"""Saved servers: name, address and token, in a file that only the user can read."""

from __future__ import annotations

import os
from pathlib import Path, PurePath

import msgspec

from headwater.cli.files import read_text_file
from headwater.core.errors import AccessError, RequestError
from headwater.disk import Disk, PosixDisk, replace_file

FILE_NAME = "contexts.json"


class Context(msgspec.Struct):
    url: str
    token: str | None = None
    ca_file: str | None = None


class Contexts(msgspec.Struct):
    current: str | None = None
    contexts: dict[str, Context] = {}


def contexts_path() -> PurePath:
    """$XDG_CONFIG_HOME/headwater/contexts.json, in ~/.config when that is not set."""
    base = os.environ.get("XDG_CONFIG_HOME", "").strip()
    return (PurePath(base) if base else Path.home() / ".config") / "headwater" / FILE_NAME


def load_contexts() -> Contexts:
    path = contexts_path()
    try:
        if not PosixDisk().exists(path):
            return Contexts()
    except OSError:
        return Contexts()
    try:
        return msgspec.json.decode(read_text_file(str(path)), type=Contexts)
    except msgspec.MsgspecError as error:
        raise RequestError(f"{path} cannot be read ({error}); mend it or remove it") from error


def save_contexts(contexts: Contexts) -> None:
    """Whole or not at all, mode 0600."""
    path = contexts_path()
    disk = PosixDisk()
    try:
        _make_directories(disk, path.parent)
        text = msgspec.json.format(msgspec.json.encode(contexts), indent=2)
        replace_file(disk, path, text + b"\n")
    except OSError as error:
        why = (error.strerror or "").lower()
        raise AccessError(f"contexts cannot be saved ({why})", path=path) from error


def _make_directories(disk: Disk, path: PurePath) -> None:
    if not disk.is_directory(path):
        if path.parent != path:
            _make_directories(disk, path.parent)
        disk.make_directory(path)
