"""Report: what a survey of Kafka's log saw, and what the table says is done about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from headwater.format.kafka.names import index_name, log_name
from headwater.recovery.finding import Action, Finding
from headwater.recovery.kafka.survey import KafkaSurvey, SegmentScan
from headwater.recovery.kafka.table import (
    COPY_ROWS,
    STRAY_ROWS,
    decide_checkpoint,
    decide_index,
    decide_log,
)
from headwater.recovery.kafka.verdict import CheckpointVerdict


@dataclass(slots=True)
class KafkaReport:
    """`findings` leaves out what is simply fine."""

    findings: list[Finding] = field(default_factory=list)

    @property
    def refusals(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.action.refuses]

    @property
    def repaired(self) -> list[Finding]:
        """What an operator may want to know of: not what every crash leaves and a start tidies."""
        return [
            finding
            for finding in self.findings
            if finding.action in (Action.CUT, Action.QUARANTINE)
            or (finding.action is Action.REWRITE and finding.offset is not None)
        ]

    def raise_if_refused(self) -> None:
        refusals = self.refusals
        if refusals:
            raise refusals[0].as_error()


def report_on_kafka(survey: KafkaSurvey) -> KafkaReport:
    findings = [*_about_checkpoints(survey)]
    for segment in survey.segments:
        findings += _about_segment(survey, segment)
    for name, stray in survey.strays:
        action, why = STRAY_ROWS[stray]
        offset = 0 if action.refuses else None
        findings.append(Finding(survey.directory / name, offset, action, stray.value, why))
    return KafkaReport(findings)


def _about_checkpoints(survey: KafkaSurvey) -> Iterator[Finding]:
    first, second = survey.checkpoints
    row = decide_checkpoint(first.verdict, survey.checkpoints.copy, entries=survey.has_entries)
    if row.action is not Action.KEEP:
        what = first.what
        if row.action.refuses and first.verdict is not CheckpointVerdict.NEWER:
            what += f"; {second.path.name} is {survey.checkpoints.copy.value}"
        yield Finding(first.path, first.offset, row.action, what, row.why)
    elif survey.checkpoint is not None:
        copy = survey.checkpoints.copy
        action, why = COPY_ROWS[copy]
        if action is not Action.KEEP:
            yield Finding(second.path, second.offset, action, second.what or copy.value, why)


def _about_segment(survey: KafkaSurvey, segment: SegmentScan) -> Iterator[Finding]:
    index = decide_index(segment.index, segment.position)
    if index.action is not Action.KEEP:
        path = survey.directory / index_name(segment.meta.number)
        yield Finding(path, segment.index_offset, index.action, segment.index_what, index.why)
    log = decide_log(segment.log, segment.position)
    if log.action is not Action.KEEP:
        path = survey.directory / log_name(segment.meta.log_number)
        yield Finding(path, segment.log_offset, log.action, segment.log_what, log.why)
