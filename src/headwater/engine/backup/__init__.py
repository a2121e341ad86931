"""Backups of a data directory, in use or not, and the way back.

Owns nothing in the data directory: no lock is taken and nothing is written there. A backup is one
file of its own, written under a temporary name and renamed when it is whole and synced. All of it
runs on the thread of the caller, which is a command or the server's pool, never the owner.

Making one (`backup`): copy every segment, which is most of the bytes; then take a view of
snapshot and log and copy again what changed meanwhile, a short step. `topic_files`,
`kafka_files` and `machine_files` know what belongs together in each store; `archive` writes the
file, with a length and a checksum for every member. The result holds what was acknowledged before
it began (I1), and every topic as of one moment; a record deleted before that moment is not in it
(I8).

Restoring (`restore`) unpacks beside the target, compares every checksum, opens the result read-only
like any data directory, and only then renames it: a crash leaves no half of it (I7). Names in the
archive are checked and never become other paths (I16). A `RestorePoint` cuts a restored directory
back to a point. A verification restores into a directory that it removes again and compares what
each topic holds (`topic_facts`), by a clock that stands still.

Start reading with `backup`, then `restore`.
"""

from headwater.engine.backup.backup import BackupReport, make_backup
from headwater.engine.backup.restore import (
    RestorePoint,
    RestoreReport,
    VerifyReport,
    restore_backup,
    verify_backup,
)
