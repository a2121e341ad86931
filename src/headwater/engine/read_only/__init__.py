"""Reading a data directory that another process owns, or that no process has open.

Owns nothing: no lock is taken, no file is made or changed, and there is no thread of its own.
Calls run in the caller's thread, under one lock of the `ReadOnlyDatabase`.

`view` is the directory as its files are at one moment. It runs the same recovery that a start
runs (`start`), on a scan of the log instead of an opened log, and concludes nothing
that only an owner may conclude: a torn tail may be a write in progress (I5). A live owner changes
files meanwhile, so a view that does not fit together is taken again; a fault counts only when two
views in a row agree on it (I6).

`database` has the read calls of `Database`. A read that finds nothing new follows the log from
where the view ended; when the owner removed or rewrote a file in the middle of a read, it takes a
new view and begins again. A read gives rows of one moment or an error, never rows of two (I2),
and never a deleted record that a view has seen deleted (I8). It sees what is written, which may
be a moment before it is synced and acknowledged.

`directory_check` reads a whole data directory and compares it with itself (the cold tier
too); backups use views, too. Start reading with `view`.
"""

from headwater.engine.read_only.database import ReadOnlyDatabase, open_read_only
from headwater.engine.read_only.view import DirectoryView

__all__ = ["DirectoryView", "ReadOnlyDatabase", "open_read_only"]
