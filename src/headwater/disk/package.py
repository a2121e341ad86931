"""The files of an installed Python package, be it a directory or a zip."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable


def package_files(package: str, suffix: str) -> list[tuple[str, bytes]]:
    """Name inside the package and contents of all files that end so, sorted by name."""
    return sorted(_below(files(package), "", suffix))


def _below(directory: Traversable, name: str, suffix: str) -> Iterator[tuple[str, bytes]]:
    for entry in directory.iterdir():
        here = f"{name}{entry.name}"
        if entry.is_dir():
            yield from _below(entry, f"{here}/", suffix)
        elif entry.name.endswith(suffix):
            yield here, entry.read_bytes()
