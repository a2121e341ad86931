"""Report: what a survey of Kafka's log saw, and what the table says is done about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headwater.format.kafka.names import index_name, log_name
from headwater.recovery.finding import Action, Finding
from headwater.recovery.kafka.survey import KafkaSurvey, SegmentScan
from headwater.recovery.kafka.table import (
    CHECKPOINT_TABLE,
    COPY_TABLE,
    INDEX_TABLE,
    LOG_TABLE,
    STRAY_TABLE,
)
from headwater.recovery.kafka.verdict import CheckpointVerdict
from headwater.recovery.report import StoreReport


@dataclass(slots=True)
class KafkaReport(StoreReport):
    @property
    def repaired(self) -> list[Finding]:
        """What an operator may want to know of: not what every crash leaves and a start tidies."""
        return [
            finding
            for finding in self.findings
            if finding.action in (Action.CUT, Action.QUARANTINE)
            or (finding.action is Action.REWRITE and finding.offset is not None)
        ]


def report_on_kafka(survey: KafkaSurvey) -> KafkaReport:
    findings = [*_about_checkpoints(survey)]
    for segment in survey.segments:
        findings += _about_segment(survey, segment)
    for name, stray in survey.strays:
        row = STRAY_TABLE.decide(stray)
        offset = 0 if row.action.refuses else None
        findings += row.findings(survey.directory / name, stray.value, offset)
    return KafkaReport(findings)


def _about_checkpoints(survey: KafkaSurvey) -> Iterator[Finding]:
    first, second = survey.checkpoints
    copy = survey.checkpoints.copy
    row = CHECKPOINT_TABLE.decide(first.verdict, copy, survey.has_entries)
    if row.action is not Action.KEEP:
        what = first.what
        if row.action.refuses and first.verdict is not CheckpointVerdict.NEWER:
            what += f"; {second.path.name} is {copy.value}"
        yield from row.findings(first.path, what, first.offset)
    elif survey.checkpoint is not None:
        what = second.what or copy.value
        yield from COPY_TABLE.decide(copy).findings(second.path, what, second.offset)


def _about_segment(survey: KafkaSurvey, segment: SegmentScan) -> Iterator[Finding]:
    path = survey.directory / index_name(segment.meta.number)
    row = INDEX_TABLE.decide(segment.index, segment.position)
    yield from row.findings(path, segment.index_what, segment.index_offset)
    path = survey.directory / log_name(segment.meta.log_number)
    row = LOG_TABLE.decide(segment.log, segment.position)
    yield from row.findings(path, segment.log_what, segment.log_offset)
