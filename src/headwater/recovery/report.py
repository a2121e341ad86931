"""Report: what a survey of one store found, and what the table says is done about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from headwater.recovery.finding import Action, Finding

ATTEMPTS_MAX: Final = 4


@dataclass(slots=True)
class StoreReport:
    """`findings` leaves out what is simply fine."""

    findings: list[Finding] = field(default_factory=list)

    @property
    def refusals(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.action.refuses]

    def raise_if_refused(self) -> None:
        for finding in self.refusals:
            raise finding.as_error()

    def raise_if_newer(self) -> None:
        """What a newer version wrote is no damage, and nothing to repair."""
        for finding in self.findings:
            if finding.action is Action.REFUSE_NEWER:
                raise finding.as_error()


Report = TypeVar("Report", bound=StoreReport)


def agreed_report(inspect: Callable[[], Report]) -> Report:
    """What two inspections in a row agree on, beside a writer that does not wait for them.

    A group can be half written, a file be rotated away between two reads. What is really there is
    there the second time too.
    """
    report = inspect()
    earlier: frozenset[Finding] = frozenset()
    for _ in range(ATTEMPTS_MAX):
        if not report.findings:
            return report
        earlier = frozenset(report.findings)
        report = inspect()
        if earlier.issuperset(report.refusals):
            break
    return replace(report, findings=[each for each in report.findings if each in earlier])
