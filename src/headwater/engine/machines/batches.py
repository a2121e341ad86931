"""A batch whose operations stand for themselves: each is answered, all are answered together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from headwater.api.machine_requests import (
    ApplyEvent,
    CreateInstance,
    DeleteInstance,
    MigrateInstance,
    Ping,
    PutMachine,
    ReadInstance,
    Request,
    Sees,
)
from headwater.core.errors import HeadwaterError
from headwater.engine.machines.answers import BatchDone, OperationOutcome
from headwater.engine.machines.book import Book
from headwater.engine.machines.draft import Draft
from headwater.engine.owner import Pending
from headwater.model.machines.errors import bad_request

BATCH_OPERATIONS_MAX: Final = 100
BATCH_MODES: Final = ("atomic", "best_effort")
BATCHED: Final = (
    PutMachine, CreateInstance, ApplyEvent, DeleteInstance, MigrateInstance, ReadInstance, Ping,
)  # fmt: skip


def check_batch(operations: Sequence[Request], mode: str) -> None:
    if mode not in BATCH_MODES:
        raise bad_request(f"mode must be one of {', '.join(BATCH_MODES)}")
    if not 1 <= len(operations) <= BATCH_OPERATIONS_MAX:
        raise bad_request(f"a batch has 1 to {BATCH_OPERATIONS_MAX} operations")
    if not all(isinstance(operation, BATCHED) for operation in operations):
        raise bad_request("this operation cannot be part of a batch")


def all_answers(draft: Draft) -> BatchDone:
    return BatchDone("atomic", [OperationOutcome(answer) for answer in draft.answers])


class BestEffort(Pending[BatchDone]):
    def __init__(self, book: Book, operations: Sequence[Request], sees: Sees | None) -> None:
        self._book = book
        self._operations = operations
        self._sees = sees
        self._outcomes: list[OperationOutcome | None] = [None] * len(operations)
        self._open = len(operations)

    def start(self) -> BestEffort:
        for index, operation in enumerate(self._operations):
            try:
                pending = self._book.submit([operation], sees=self._sees)
            except HeadwaterError as error:
                self._complete(index, OperationOutcome(None, error))
                continue
            if pending.done:
                self._answered(index, pending)
            else:
                pending.on_done = partial(self._answered, index)
        return self

    def _answered(self, index: int, pending: Pending[Any]) -> None:
        self._complete(index, OperationOutcome(pending.result, pending.error))

    def _complete(self, index: int, outcome: OperationOutcome) -> None:
        self._outcomes[index] = outcome
        self._open -= 1
        if not self._open:
            self.succeed(BatchDone("best_effort", [each for each in self._outcomes if each]))
