"""A data directory and its stores. `verify` and `repair` go through this list and know no other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from pathlib import PurePath
from typing import Any, Final, NamedTuple

from headwater.disk import Disk
from headwater.disk.posix import LOCK_NAME
from headwater.format.kafka.names import KAFKA_DIRECTORY
from headwater.format.machines.names import MACHINES_DIRECTORY
from headwater.format.names import REPORTS_DIRECTORY, TOPICS_DIRECTORY, WAL_DIRECTORY
from headwater.format.snapshot import META_DIRECTORY
from headwater.recovery.finding import Finding, RepairPlan, StoreReport, agreed_report
from headwater.recovery.kafka.plan import plan_kafka_repairs
from headwater.recovery.kafka.survey import report_on_kafka, survey_kafka
from headwater.recovery.kafka.verify import check_kafka_segment, join_kafka, plan_kafka
from headwater.recovery.machines.plan import plan_machine_repairs
from headwater.recovery.machines.segment import scan_machine_segment
from headwater.recovery.machines.survey import begin_survey, report_on_machines, survey_machines
from headwater.recovery.machines.verify import machine_faults
from headwater.recovery.topics.plan import plan_repairs
from headwater.recovery.topics.report import inspect_until_stable
from headwater.store.verify import FaultKind, VerifyFault

OF_A_VOLUME: Final = "lost+found"
"""Where the data directory is a volume of its own, ext4 has put this there."""
DIRECTORY_NAMES: Final = frozenset(
    {
        OF_A_VOLUME,
        LOCK_NAME,
        WAL_DIRECTORY,
        META_DIRECTORY,
        TOPICS_DIRECTORY,
        REPORTS_DIRECTORY,
        KAFKA_DIRECTORY,
        MACHINES_DIRECTORY,
    }
)
"""What there may be in a data directory."""


def gone(path: PurePath, error: FileNotFoundError) -> VerifyFault:
    """An owner removed it just now, or it really is missing: the next inspection shows."""
    missing = PurePath(error.filename or path)
    return VerifyFault(missing, None, "went away while it was read", True, FaultKind.CHANGED)


MapSegments = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]
"""The check of each segment, in the order of the segments. Each tells its `data_bytes`."""


class Store(NamedTuple):
    """One of the stores of a data directory, for those who check and repair all of them."""

    name: str
    directory: str
    report: Callable[[Disk, PurePath], StoreReport]
    """What a start would find in the store's directory; beside a writer, what two surveys agree
    on."""
    plan: Callable[[Disk, PurePath], Sequence[RepairPlan]]

    def findings(self, disk: Disk, data: PurePath) -> list[Finding]:
        return self.report(disk, data / self.directory).findings

    def plans(self, disk: Disk, data: PurePath) -> Sequence[RepairPlan]:
        """What a repair would do now. Empty when a start refuses nothing."""
        return self.plan(disk, data / self.directory)

    def agreed_plans(self, disk: Disk, data: PurePath) -> Sequence[RepairPlan]:
        """On a store in use, what a single inspection refuses may be a writer at work."""
        refusals = self.report(disk, data / self.directory).refusals
        return self.plans(disk, data) if refusals else ()


def _machines(disk: Disk, directory: PurePath) -> StoreReport:
    return agreed_report(lambda: report_on_machines(survey_machines(disk, directory, whole=False)))


def _kafka(disk: Disk, directory: PurePath) -> StoreReport:
    return agreed_report(lambda: report_on_kafka(survey_kafka(disk, directory)))


class StoreCheck(NamedTuple):
    """What a deep check of a whole store came to."""

    faults: Sequence[VerifyFault] = ()
    segments: int = 0
    entries: int = 0
    """Of the machines' log; of Kafka's, batches."""


class DeepCheck(NamedTuple):
    """How every byte of a store is checked, for those who verify: a plan, each segment by itself,
    in any task, and then what all of them come to."""

    directory: str
    plan: Callable[[Disk, PurePath], Any]
    """FileNotFoundError when an owner changes the files meanwhile."""
    check: Callable[[Disk, Any], Any]
    count: Callable[[Any], int]
    join: Callable[[Any, Sequence[Any]], list[VerifyFault]]

    def run(self, disk: Disk, data: PurePath, map_all: MapSegments) -> StoreCheck:
        path = data / self.directory
        try:
            plan = self.plan(disk, path)
        except FileNotFoundError as error:
            return StoreCheck([gone(path, error)])
        checks = map_all(partial(self.check, disk), plan.segments)
        return StoreCheck(self.join(plan, checks), len(checks), sum(map(self.count, checks)))


TOPICS: Final = Store("topics", WAL_DIRECTORY, inspect_until_stable, plan_repairs)
MACHINES: Final = Store("machines", MACHINES_DIRECTORY, _machines, plan_machine_repairs)
KAFKA: Final = Store("kafka", KAFKA_DIRECTORY, _kafka, plan_kafka_repairs)
BESIDE_TOPICS: Final[tuple[Store, ...]] = (MACHINES, KAFKA)
"""Each may be away while the others are served."""
EVERY_STORE: Final = (TOPICS, *BESIDE_TOPICS)
DEEP_MACHINES: Final = DeepCheck(
    MACHINES_DIRECTORY, begin_survey, scan_machine_segment, attrgetter("entries"), machine_faults
)
DEEP_KAFKA: Final = DeepCheck(
    KAFKA_DIRECTORY, plan_kafka, check_kafka_segment, attrgetter("batches"), join_kafka
)
