"""Reading a data directory that another process owns, or that no process has open."""

from headwater.engine.read_only.database import ReadOnlyDatabase, open_read_only
from headwater.engine.read_only.view import DirectoryView

__all__ = ["DirectoryView", "ReadOnlyDatabase", "open_read_only"]
