"""Backups of a data directory, hot or not, and the way back."""

from headwater.engine.backup.backup import BackupReport, make_backup
from headwater.engine.backup.point import RestorePoint
from headwater.engine.backup.restore import RestoreReport, restore_backup
from headwater.engine.backup.verification import VerifyReport, verify_backup

__all__ = [
    "BackupReport",
    "RestorePoint",
    "RestoreReport",
    "VerifyReport",
    "make_backup",
    "restore_backup",
    "verify_backup",
]
