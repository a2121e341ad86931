"""The public test kit: a manual clock, three hostile disks and an oracle.

`Call`, `Scope` and `Violation` are the names that `DiskCall`, `FileScope` and `OrderViolation` had;
they go with the next release.
"""

from headwater.testing.clock import ManualClock
from headwater.testing.crash_plan import (
    DROPS,
    EVERYTHING,
    KILL,
    PAIRS,
    POWER_LOSS,
    PREFIXES,
    RANDOM,
    SECTORS,
    TORN,
    CrashKind,
    CrashPlan,
    Rest,
)
from headwater.testing.fake_disk import FakeDisk
from headwater.testing.fault_disk import FaultDisk
from headwater.testing.faults import (
    ALL_VERBS,
    CHANGING_VERBS,
    FAILING_VERBS,
    READING_VERBS,
    SPACE_VERBS,
    CrashPoint,
    DiskCall,
    Fault,
    SimulatedCrash,
    Verb,
    When,
)
from headwater.testing.faults import DiskCall as Call
from headwater.testing.oracle import Crash, Item, Oracle, OracleError
from headwater.testing.order_monitor import OrderMonitor, OrderViolation, OrderViolationError
from headwater.testing.order_monitor import OrderViolation as Violation
from headwater.testing.order_rules import (
    BytesSynced,
    FileScope,
    Milestone,
    NamesSynced,
    Rule,
    Step,
    append_only,
    bytes_before,
    current_after_name,
    data_before_index,
    index_before_mark,
    log_rules,
    mark_before_trim,
    names_before,
    synced_before_rename,
)
from headwater.testing.order_rules import FileScope as Scope
from headwater.testing.trace import Image, Operation, OperationKind

__all__ = [
    "ALL_VERBS",
    "CHANGING_VERBS",
    "DROPS",
    "EVERYTHING",
    "FAILING_VERBS",
    "KILL",
    "PAIRS",
    "POWER_LOSS",
    "PREFIXES",
    "RANDOM",
    "READING_VERBS",
    "SECTORS",
    "SPACE_VERBS",
    "TORN",
    "BytesSynced",
    "Call",
    "Crash",
    "CrashKind",
    "CrashPlan",
    "CrashPoint",
    "DiskCall",
    "FakeDisk",
    "Fault",
    "FaultDisk",
    "FileScope",
    "Image",
    "Item",
    "ManualClock",
    "Milestone",
    "NamesSynced",
    "Operation",
    "OperationKind",
    "Oracle",
    "OracleError",
    "OrderMonitor",
    "OrderViolation",
    "OrderViolationError",
    "Rest",
    "Rule",
    "Scope",
    "SimulatedCrash",
    "Step",
    "Verb",
    "Violation",
    "When",
    "append_only",
    "bytes_before",
    "current_after_name",
    "data_before_index",
    "index_before_mark",
    "log_rules",
    "mark_before_trim",
    "names_before",
    "synced_before_rename",
]
