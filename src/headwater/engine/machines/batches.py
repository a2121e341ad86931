"""A batch whose operations stand for themselves: each is answered, all are answered together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from headwater.core.errors import HeadwaterError
from headwater.engine.machines.answers import BatchDone, Outcome
from headwater.engine.machines.book import Book
from headwater.engine.machines.requests import Request
from headwater.engine.pending import Pending


class BestEffort(Pending[BatchDone]):
    def __init__(self, book: Book, operations: Sequence[Request]) -> None:
        self._book = book
        self._operations = operations
        self._outcomes: list[Outcome | None] = [None] * len(operations)
        self._open = len(operations)

    def start(self) -> BestEffort:
        for index, operation in enumerate(self._operations):
            try:
                pending = self._book.submit([operation])
            except HeadwaterError as error:
                self._settle(index, Outcome(None, error))
                continue
            if pending.done:
                self._answered(index, pending)
            else:
                pending.on_done = partial(self._answered, index)
        return self

    def _answered(self, index: int, pending: Pending[Any]) -> None:
        self._settle(index, Outcome(pending.result, pending.error))

    def _settle(self, index: int, outcome: Outcome) -> None:
        self._outcomes[index] = outcome
        self._open -= 1
        if not self._open:
            self.succeed(BatchDone("best_effort", [each for each in self._outcomes if each]))
