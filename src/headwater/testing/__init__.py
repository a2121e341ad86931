"""The public test kit: a manual clock, three hostile disks and an oracle."""

from headwater.testing.clock import ManualClock
from headwater.testing.crash_plan import (
    DROPS,
    EVERYTHING,
    KILL,
    PAIRS,
    POWER_LOSS,
    PREFIXES,
    RANDOM,
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
    Call,
    CrashPoint,
    Fault,
    SimulatedCrash,
    Verb,
    When,
)
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
    "SPACE_VERBS",
    "TORN",
    "Call",
    "CrashKind",
    "CrashPlan",
    "CrashPoint",
    "FakeDisk",
    "Fault",
    "FaultDisk",
    "Image",
    "ManualClock",
    "Operation",
    "OperationKind",
    "Rest",
    "SimulatedCrash",
    "Verb",
    "When",
]
