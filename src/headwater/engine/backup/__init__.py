"""Backups of a data directory, hot or not, and the way back."""

from headwater.engine.backup.making import BackupReport, make_backup
from headwater.engine.backup.point import RestorePoint
from headwater.engine.backup.restoring import RestoreReport, restore_backup
from headwater.engine.backup.verifying import VerifyReport, verify_backup

__all__ = [
    "BackupReport",
    "RestorePoint",
    "RestoreReport",
    "VerifyReport",
    "make_backup",
    "restore_backup",
    "verify_backup",
]
