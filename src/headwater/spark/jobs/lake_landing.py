"""What the driver does for the job `lake`: one batch after the other becomes part of three tables.

Executors write the files of a batch; then the dead letters are committed, then the gaps, then the
main table, whose commit is the one that counts. Each commit knows its batch, so a batch that is run
again after a crash skips what is there and adds what is not. Whether a record is a dead letter is
decided by the rules (fields, payload, columns); if dead letters of a batch are there and the rest
is not, the rest must be judged by the same rules, and other rules are refused.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from headwater.core.errors import RequestError
from headwater.format.checksum import checksum64
from headwater.spark.jobs.job import Progress
from headwater.spark.jobs.lake_rows import (
    DATE,
    DEAD,
    ENVELOPE,
    GAPS,
    WRITTEN,
    Kind,
    LakePayload,
    LandTask,
)
from headwater.spark.runtime.arrow_schema import to_arrow, to_spark
from headwater.spark.tables.columns import VARIANT_TYPE
from headwater.spark.tables.table import (
    AlreadyLandedError,
    Landed,
    Landing,
    Table,
    WrittenFile,
    check_landing,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SCHEMAS: Final = {Kind.DEAD: DEAD, Kind.GAPS: GAPS}


class RulesChangedError(RequestError):
    """A batch was begun under other rules, and must be finished under those."""

    code = "rules_changed"


@dataclass(slots=True)
class Landings:
    """What has landed so far."""

    batches: int = 0
    rows: int = 0
    files: int = 0
    bytes: int = 0
    dead_letters: int = 0
    gaps: int = 0
    already_landed: int = 0
    """Batches that were there already."""
    orphans: int = 0
    """Files of runs that died, deleted."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What the main table is to look like, and the rules by which records fit it."""

    columns: pa.Schema
    partition_by: tuple[str, ...]
    payload: LakePayload
    fields: str

    @property
    def rules(self) -> str:
        parts = [self.payload.value, self.fields, *map(str, self.columns), *self.partition_by]
        return f"{checksum64('|'.join(parts).encode()):016x}"


def shape_of(
    fields: pa.Schema,
    ddl: str,
    payload: LakePayload,
    partition_by: Sequence[str],
    table_format: str,
) -> Shape:
    """Envelope, payload, fields, and the day when the table is partitioned by it."""
    columns = list(ENVELOPE)
    data_types = {LakePayload.TEXT: pa.string(), LakePayload.BINARY: pa.binary()}
    if payload in data_types:
        columns.append(pa.field("data", data_types[payload]))
    elif payload is LakePayload.VARIANT:
        if table_format == "iceberg":
            raise RequestError(
                "pyiceberg cannot write VARIANT columns: use --payload text, or another format"
            )
        columns.append(pa.field("data", VARIANT_TYPE))
    columns += fields
    if DATE in partition_by and DATE not in fields.names:
        columns.append(pa.field(DATE, pa.date32()))
    names = [column.name.lower() for column in columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise RequestError(
            f"{', '.join(twice)} would be a column twice: give the field another name, or leave "
            "the payload out (--payload none)"
        )
    return Shape(pa.schema(columns), tuple(partition_by), payload, ddl)


@dataclass(slots=True)
class Lander:
    """Called by Spark with every batch."""

    tables: Mapping[Kind, Table]
    shape: Shape
    app: str
    progress: Progress
    checkpoint: str = ""
    totals: Landings = field(default_factory=Landings)
    error: BaseException | None = None
    """What went wrong here, as it was before Spark put it into its own words."""
    _columns: pa.Schema | None = None

    def land(self, rows: DataFrame, batch_id: int) -> None:
        try:
            self._land(rows, batch_id)
        except BaseException as error:
            self.error = error
            raise

    def _land(self, rows: DataFrame, batch_id: int) -> None:
        landing = Landing(self.app, batch_id, self.checkpoint, self.shape.rules)
        landed = {kind: check_landing(table, landing) for kind, table in self.tables.items()}
        if _is_there(landed[Kind.MAIN], batch_id):
            self.totals.already_landed += 1
            return
        self._check_rules(landed, landing)
        if self._columns is None:
            self._clean(landed)
            main = self.tables[Kind.MAIN]
            self._columns = main.evolve(self.shape.columns, self.shape.partition_by)
        written = write_files(rows, self._task(landing))
        for kind in (Kind.DEAD, Kind.GAPS, Kind.MAIN):
            self._commit(kind, landing, written.get(kind, []), landed[kind])
        self.totals.batches += 1
        self.progress.advance(sum(file.rows for file in written.get(Kind.MAIN, [])))
        self.progress.say(f"batch {batch_id} is in the table")

    def _task(self, landing: Landing) -> LandTask:
        assert self._columns is not None
        by = {Kind.MAIN: self.shape.partition_by}
        return LandTask(
            run=uuid.uuid4().hex,
            batch=landing.batch,
            payload=self.shape.payload,
            layouts={
                kind: table.layout(landing, by.get(kind, ())) for kind, table in self.tables.items()
            },
            columns=bytes(self._columns.serialize()),
        )

    def _commit(
        self, kind: Kind, landing: Landing, files: list[WrittenFile], landed: Landed | None
    ) -> None:
        if not files:
            return
        table = self.tables[kind]
        if kind in _SCHEMAS:
            if _is_there(landed, landing.batch):
                for file in files:
                    table.location.delete(file.path)
                return
            table.evolve(_SCHEMAS[kind], ())
        table.commit(landing, files)
        table.discard(landing, [file.path for file in files])
        rows = sum(file.rows for file in files)
        if kind is Kind.DEAD:
            self.totals.dead_letters += rows
        elif kind is Kind.GAPS:
            self.totals.gaps += rows
        else:
            self.totals.rows += rows
            self.totals.files += len(files)
            self.totals.bytes += sum(file.bytes for file in files)

    def _check_rules(self, landed: Mapping[Kind, Landed | None], landing: Landing) -> None:
        dead = landed[Kind.DEAD]
        if dead is not None and dead.batch == landing.batch and not dead.same_rules:
            raise RulesChangedError(
                f"batch {landing.batch} has its dead letters in "
                f"{self.tables[Kind.DEAD].location.uri} and not its rows, and was judged by other "
                "fields or another payload than these: finish it with those once, then change them"
            )

    def _clean(self, landed: Mapping[Kind, Landed | None]) -> None:
        """A run that died left files that nothing refers to."""
        for kind, table in self.tables.items():
            last = landed[kind]
            self.totals.orphans += table.clean(self.app, -1 if last is None else last.batch)


def _is_there(landed: Landed | None, batch: int) -> bool:
    return landed is not None and landed.batch >= batch


def write_files(rows: DataFrame, task: LandTask) -> dict[Kind, list[WrittenFile]]:
    """Run the tasks and collect what they wrote."""
    files_by_kind: dict[Kind, list[WrittenFile]] = {}
    for row in rows.mapInArrow(task, to_spark(WRITTEN)).collect():
        partition: dict[str, str | None] = msgspec.json.decode(row["partition"])
        file = WrittenFile(row["path"], row["rows"], row["bytes"], partition, row["stats"])
        files_by_kind.setdefault(Kind(row["kind"]), []).append(file)
    return files_by_kind


def committed(table: Table, landing: Landing, files: list[WrittenFile]) -> bool:
    """Commit, unless it is there; gives whether it was made now."""
    try:
        table.commit(landing, files)
    except AlreadyLandedError:
        return False
    return True


def arrow_fields(ddl: str | None) -> Any:
    """The fields of a DDL text as Arrow."""
    if not ddl:
        return pa.schema([])
    from headwater.spark.source.schema import parse_ddl
    from headwater.spark.tables.columns import plain

    return plain(to_arrow(parse_ddl(ddl)))
