"""The job `lake`: topics become a Delta, Iceberg or Parquet table, once or for as long as it runs.

Every record is in the table once, or in the table of dead letters beside it, with its cause and
its bytes; what retention took before it was read is in the table of gaps. How far the job has come
is in the checkpoint; the tables know which batches of which checkpoint they hold, so that a job
that was killed at any moment goes on without losing or doubling anything.

Executors write the files of a batch; then the driver commits the dead letters, then the gaps, then
the main table, whose commit is the one that counts. Each commit knows its batch, so a batch that is
run again after a crash skips what is there and adds what is not. Whether a record is a dead letter
is decided by the rules (fields, payload, columns); if dead letters of a batch are there and the
rest is not, the rest must be judged by the same rules, and other rules are refused.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from headwater.core.clock import Clock, SystemClock
from headwater.core.errors import RequestError
from headwater.core.units import US_PER_S
from headwater.format.checksum import checksum64
from headwater.spark.jobs.job import NoProgress, Place, Progress, Report
from headwater.spark.jobs.lake_rows import (
    DATE,
    DEAD,
    ENVELOPE,
    GAPS,
    VARIANT,
    WRITTEN,
    Kind,
    LakePayload,
    LandTask,
)
from headwater.spark.runtime.arrow_schema import to_arrow, to_spark
from headwater.spark.source.stream_reader import decode_offset
from headwater.spark.tables.columns import VARIANT_TYPE
from headwater.spark.tables.formats import FORMATS, open_table
from headwater.spark.tables.location import TableLocation
from headwater.spark.tables.table import (
    AlreadyLandedError,
    Landed,
    Landing,
    Table,
    WrittenFile,
    check_landing,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

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
    batches_found: int = 0
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
            self.totals.batches_found += 1
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


_POLL_S: Final = 1
_SUFFIXES: Final = {Kind.MAIN: "", Kind.DEAD: "-dead-letters", Kind.GAPS: "-gaps"}
"""The tables beside the main one."""


class LakeOptions(msgspec.Struct, frozen=True, kw_only=True):
    place: Place
    table: str
    """An absolute path or an address; the name of the table when there is a catalog."""
    format: str = "delta"
    checkpoint: str
    fields: str | None = None
    """Fields of the payload that become columns, as in `user string, amount long`."""
    payload: str | None = None
    """text, binary, variant or none; text without fields, none with them."""
    partition_by: tuple[str, ...] = ()
    """Columns, or `date` for the day of ts."""
    every_s: float | None = None
    """Poll for new records so often; None: once, up to what is there at the start."""
    app_id: str | None = None
    records_per_batch: int | None = None
    starting_seq: str | None = None
    catalog: str | None = None
    """A catalog pyiceberg knows by name, in place of a file beside the table."""
    location: str | None = None
    """With a catalog: where the table's files are."""

    def app(self) -> str:
        """Who writes: the same topics into the same table are the same writer."""
        return self.app_id or "lake:" + ",".join(sorted(self.place.topics))

    def shape(self) -> Shape:
        fields = arrow_fields(self.fields)
        default = LakePayload.NONE if len(fields) else LakePayload.TEXT
        payload = default if self.payload is None else _payload(self.payload)
        return shape_of(fields, self.fields or "", payload, self.partition_by, self.format)

    def tables(self) -> dict[Kind, Table]:
        if self.format not in FORMATS:
            raise RequestError(f"a table is one of {', '.join(FORMATS)}, not {self.format!r}")
        if self.catalog is not None and (self.format != "iceberg" or self.location is None):
            raise RequestError("a catalog goes with Iceberg tables and a location for their files")
        base = TableLocation.of(self.table if self.catalog is None else self.location or "")
        tables: dict[Kind, Table] = {}
        for kind, suffix in _SUFFIXES.items():
            name = None if self.catalog is None else self.table + suffix.replace("-", "_")
            tables[kind] = open_table(self.format, base.beside(suffix), self.catalog, name)
        return tables


class LakeReport(Report, frozen=True, kw_only=True):
    table: str
    format: str
    app_id: str
    batches: int
    rows: int
    files: int
    bytes: int
    dead_letters: int
    gaps: int
    batches_found: int
    """Batches that were in the table already: a run before this one was killed after its commit."""
    orphans: int
    """Files of runs that died, deleted."""
    lag: int
    """Records that were written to the topics and are not in the table yet."""
    seconds: float


def run(
    spark: SparkSession,
    options: LakeOptions,
    progress: Progress | None = None,
    clock: Clock | None = None,
    stop: threading.Event | None = None,
) -> LakeReport:
    """Land what there is; with `every_s`, until `stop` is set."""
    clock = clock or SystemClock()
    started_us = clock.monotonic_us()
    tables, shape = options.tables(), options.shape()
    rows = read_topics(spark, options, shape)
    lander = Lander(tables, shape, options.app(), progress or NoProgress())
    query = _start(rows, options, lander)
    try:
        _wait(query, stop)
    finally:
        query.stop()
    if stop is None or not stop.is_set():  # a batch that was interrupted is run again
        failed = lander.error or query.exception()
        if failed is not None:
            raise failed
    return _report(options, lander.totals, _lag(query), clock.monotonic_us() - started_us)


def read_topics(spark: SparkSession, options: LakeOptions, shape: Shape) -> DataFrame:
    """The topics as a stream whose rows say themselves what is wrong with them."""
    if not options.place.topics:
        raise RequestError("name at least one topic")
    given = {
        **options.place.options(),
        "topics": ",".join(options.place.topics),
        "payload": "binary",
        "failOnDataLoss": "false",
    }
    if options.fields:
        given |= {"fields": options.fields, "invalid": "column"}
    if options.records_per_batch is not None:
        given["maxRecordsPerTrigger"] = str(options.records_per_batch)
    if options.starting_seq is not None:
        given["startingSeq"] = options.starting_seq
    rows = spark.readStream.format("headwater").options(**given).load()
    return with_variant(rows) if shape.payload is LakePayload.VARIANT else rows


def with_variant(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions

    text = functions.col("data").cast("string")
    return rows.withColumn(VARIANT, functions.try_parse_json(text))


def _start(rows: DataFrame, options: LakeOptions, lander: Lander) -> StreamingQuery:
    known = threading.Event()

    def land(batch: DataFrame, batch_id: int) -> None:
        known.wait()  # the id is given by what starts the query, which may be slower than a batch
        lander.land(batch, batch_id)

    writer = rows.writeStream.foreachBatch(land)
    writer = writer.option("checkpointLocation", options.checkpoint)
    if options.every_s is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{int(options.every_s * 1_000)} milliseconds")
    query = writer.start()
    lander.checkpoint = str(query.id)
    known.set()
    return query


def _wait(query: StreamingQuery, stop: threading.Event | None) -> None:
    from pyspark.errors import StreamingQueryException

    try:
        while not query.awaitTermination(_POLL_S):
            if stop is not None and stop.is_set():
                return
    except StreamingQueryException:
        return  # the caller reports it in better words


def _lag(query: StreamingQuery) -> int:
    """From the last progress: what the topics had, less what was read."""
    last: Any = query.lastProgress
    if last is None:
        return 0
    lag = 0
    for source in last["sources"]:
        if not source.get("latestOffset") or not source.get("endOffset"):
            continue
        ends, heads = (_cursors(source[name]) for name in ("endOffset", "latestOffset"))
        lag += sum(max(seq - ends.get(name, 0), 0) for name, seq in heads.items())
    return lag


def _cursors(offset: Any) -> dict[str, int]:
    ends = msgspec.json.decode(offset) if isinstance(offset, str) else offset
    return {name: cursor.seq for name, cursor in decode_offset(ends).items()}


def _payload(text: str) -> LakePayload:
    try:
        return LakePayload(text)
    except ValueError as error:
        words = ", ".join(each.value for each in LakePayload)
        raise RequestError(f"the payload is kept as one of {words}, not {text!r}") from error


def _report(options: LakeOptions, totals: Landings, lag: int, took_us: int) -> LakeReport:
    return LakeReport(
        ok=True,
        table=options.table,
        format=options.format,
        app_id=options.app(),
        **asdict(totals),
        lag=lag,
        seconds=took_us / US_PER_S,
    )
