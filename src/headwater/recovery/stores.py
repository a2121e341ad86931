"""The stores of a data directory. `verify` and `repair` go through this list and know no other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Final

from headwater.disk import Disk
from headwater.format.kafka.names import KAFKA_DIRECTORY
from headwater.format.machines.names import MACHINES_DIRECTORY
from headwater.format.names import WAL_DIRECTORY
from headwater.recovery.finding import Finding
from headwater.recovery.kafka.plan import plan_kafka_repairs
from headwater.recovery.kafka.report import report_on_kafka
from headwater.recovery.kafka.survey import survey_kafka
from headwater.recovery.machines.plan import plan_machine_repairs
from headwater.recovery.machines.verify import machine_findings
from headwater.recovery.plan import RepairPlan, Store, agreed_findings
from headwater.recovery.topics.inspection import inspect_until_stable
from headwater.recovery.topics.plan import plan_repairs


def _topics_findings(disk: Disk, data: PurePath) -> list[Finding]:
    return inspect_until_stable(disk, data / WAL_DIRECTORY).findings


def _topics_plans(disk: Disk, data: PurePath) -> Sequence[RepairPlan]:
    return plan_repairs(disk, data / WAL_DIRECTORY)


def _machines_findings(disk: Disk, data: PurePath) -> list[Finding]:
    return agreed_findings(lambda: machine_findings(disk, data))


def _machines_plans(disk: Disk, data: PurePath) -> Sequence[RepairPlan]:
    return plan_machine_repairs(disk, data / MACHINES_DIRECTORY)


def _kafka_findings(disk: Disk, data: PurePath) -> list[Finding]:
    return agreed_findings(
        lambda: report_on_kafka(survey_kafka(disk, data / KAFKA_DIRECTORY)).findings
    )


def _kafka_plans(disk: Disk, data: PurePath) -> Sequence[RepairPlan]:
    return plan_kafka_repairs(disk, data / KAFKA_DIRECTORY)


TOPICS: Final = Store("topics", _topics_findings, _topics_plans)
MACHINES: Final = Store("machines", _machines_findings, _machines_plans)
KAFKA: Final = Store("kafka", _kafka_findings, _kafka_plans)
BESIDE_TOPICS: Final[tuple[Store, ...]] = (MACHINES, KAFKA)
"""Each may be away while the others are served."""
EVERY_STORE: Final = (TOPICS, *BESIDE_TOPICS)
