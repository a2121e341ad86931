"""The stores of a data directory. `verify` and `repair` go through this list and know no other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from pathlib import PurePath
from typing import Any, Final, NamedTuple

from headwater.disk import Disk
from headwater.format.kafka.names import KAFKA_DIRECTORY
from headwater.format.machines.names import MACHINES_DIRECTORY
from headwater.format.names import WAL_DIRECTORY
from headwater.recovery.data_directory import gone
from headwater.recovery.finding import Finding
from headwater.recovery.kafka.plan import plan_kafka_repairs
from headwater.recovery.kafka.report import report_on_kafka
from headwater.recovery.kafka.survey import survey_kafka
from headwater.recovery.kafka.verify import join_kafka, plan_kafka
from headwater.recovery.kafka.verify_segment import check_kafka_segment
from headwater.recovery.machines.plan import plan_machine_repairs
from headwater.recovery.machines.report import report_on_machines
from headwater.recovery.machines.segment import scan_machine_segment
from headwater.recovery.machines.survey import begin_survey, survey_machines
from headwater.recovery.machines.verify import machine_faults
from headwater.recovery.plan import RepairPlan
from headwater.recovery.report import StoreReport, agreed_report
from headwater.recovery.topics.inspection import inspect_until_stable
from headwater.recovery.topics.plan import plan_repairs
from headwater.store.verify import VerifyFault

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
