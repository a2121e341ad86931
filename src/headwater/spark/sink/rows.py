"""Rows of a data frame as the records of a write: JSON texts, joined by Arrow.

A row becomes `{"meta":{...},"data":...,"tag":"...","node":"..."},` with its comma, so that a chunk
of rows is one run of bytes. `meta` comes first because the first row of a chunk is given a mark in
it, see `chunks`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core import limits
from headwater.core.errors import InvalidRequestError, RecordTooLargeError
from headwater.spark.sink.json_columns import is_variant, json_objects, json_texts, quoted
from headwater.spark.sink.options import SinkColumns, check_sink_topic

MARK: Final = "$sink"
"""The key in a record's meta that says which chunk begins here."""
_BLANKS: Final = " \t\r\n"
_EMPTY: Final = r"^\{\s*\}$"
_NO_TEXT: Final = pa.scalar(None, pa.string())
_MARK_TEXT: Final = f'"{MARK}"'
json_values = msgspec.json.Decoder(list[msgspec.Raw])
_one = msgspec.json.Decoder(msgspec.Raw)
_objects = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, slots=True)
class TopicRows:
    topic: str
    texts: Any
    """A string array, one text for each row."""


class RowEncoder:
    """Turns record batches into texts by topic, and knows where it stands for its errors."""

    def __init__(self, columns: SinkColumns, topic: str | None, partition: str) -> None:
        self._columns = columns
        self._topic = topic
        self._partition = partition
        self._before = 0

    def texts(self, batch: pa.RecordBatch) -> Iterator[TopicRows]:
        """The rows of a batch, topic by topic, each in the order it came in."""
        columns = self._columns
        records = batch
        if columns.gap is not None:
            records = batch.filter(pc.is_null(batch.column(columns.gap)))
        texts = self._encode(records)
        names = None if columns.topic is None else self._names(records.column(columns.topic))
        self._before += len(batch)
        if self._topic is not None:
            yield TopicRows(self._topic, texts)
            return
        for name in pc.unique(names).to_pylist():
            yield TopicRows(check_sink_topic(name), texts.filter(pc.equal(names, name)))

    def _names(self, names: Any) -> Any:
        if names.null_count:
            where = self._at(pc.index(names.is_valid(), False).as_py())
            raise InvalidRequestError(f"{where}: the column topic is null; a row names its topic")
        return names

    def _encode(self, batch: pa.RecordBatch) -> Any:
        columns = self._columns
        meta = self._meta(batch)
        data = self._data(batch)
        size = pc.add(pc.binary_length(data), pc.fill_null(pc.binary_length(meta), 0))
        self._check_size(size, limits.RECORD_BYTES_MAX, "data and meta")
        tag = self._word(batch, columns.tag, limits.TAG_BYTES_MAX)
        node = self._word(batch, columns.node, limits.NODE_BYTES_MAX)
        parts: list[Any] = ["{"]
        parts += _member('"meta":', meta, ",")
        parts += ['"data":', data]
        parts += _member(',"tag":', tag)
        parts += _member(',"node":', node)
        return pc.binary_join_element_wise(*parts, "},", "")

    def _data(self, batch: pa.RecordBatch) -> Any:
        columns = self._columns
        if columns.data is None:
            return json_objects(columns.fields, [batch.column(name) for name in columns.fields])
        texts = self._json(batch.column(columns.data), "data", json_values, _one)
        return pc.fill_null(texts, "null")

    def _meta(self, batch: pa.RecordBatch) -> Any:
        name = self._columns.meta
        if name is None:
            return pa.nulls(len(batch), pa.string())
        texts = self._json(batch.column(name), "meta", _objects, _object)
        self._check_size(pc.fill_null(pc.binary_length(texts), 0), limits.META_BYTES_MAX, "meta")
        # An empty object says nothing, and could not be distinguished from one that held only a
        # mark.
        texts = pc.if_else(pc.match_substring_regex(texts, _EMPTY), _NO_TEXT, texts)
        marked = pc.fill_null(pc.match_substring(texts, _MARK_TEXT), False)
        if pc.any(marked).as_py():
            # Read from a topic that a sink wrote: its marks are no business of this one.
            cleaned = [_without_mark(text) for text in texts.filter(marked).to_pylist()]
            texts = pc.replace_with_mask(texts, marked, pa.array(cleaned, pa.string()))
        return texts

    def _json(
        self,
        column: Any,
        field: str,
        all_at_once: msgspec.json.Decoder[Any],
        each: msgspec.json.Decoder[Any],
    ) -> Any:
        """A column of JSON texts, checked; other columns as JSON."""
        kind = column.type
        if is_variant(kind) or not _is_textual(kind):
            texts = json_texts(column)
            if field == "data" or not len(texts):
                return texts
        else:
            # What Spark hands over may be indented; a record begins with its value.
            texts = pc.utf8_trim(self._utf8(column, field), characters=_BLANKS)
        if not all_valid(texts, all_at_once):
            self._check_each(texts, field, each)
        return texts

    def _utf8(self, column: Any, field: str) -> Any:
        try:
            return column.cast(pa.string())
        except pa.ArrowInvalid as error:
            self._check_each(column.cast(pa.binary()), field, _one)
            raise InvalidRequestError(f"{field} is not UTF-8: {error}") from error

    def _check_each(self, texts: Any, field: str, decoder: msgspec.json.Decoder[Any]) -> None:
        for position, text in enumerate(texts.to_pylist()):
            try:
                if text is not None:
                    (text.decode() if isinstance(text, bytes) else text)
                    decoder.decode(text)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                wanted = "a JSON object" if field == "meta" else "JSON"
                raise InvalidRequestError(
                    f"{self._at(position)}: {field} is not {wanted} ({error}); text that is to "
                    "be a JSON string is made one by to_json, rows that are not wanted are "
                    "filtered out before the write"
                ) from error

    def _word(self, batch: pa.RecordBatch, name: str | None, bytes_max: int) -> Any:
        if name is None:
            return pa.nulls(len(batch), pa.string())
        words = batch.column(name).cast(pa.string())
        self._check_size(pc.fill_null(pc.binary_length(words), 0), bytes_max, name)
        return quoted(words)

    def _check_size(self, sizes: Any, most: int, what: str) -> None:
        if len(sizes) and pc.max(sizes).as_py() > most:
            position = pc.index(pc.greater(sizes, most), True).as_py()
            raise RecordTooLargeError(
                f"{self._at(position)}: {what} has {sizes[position]} bytes, a record takes at "
                f"most {most}; filter such rows out, or keep the payload elsewhere and its "
                "address here"
            )

    def _at(self, position: int) -> str:
        return f"row {self._before + position} of partition {self._partition}"


def _member(opening: str, texts: Any, closing: str = "") -> list[Any]:
    """The parts of one member of an object; nothing where it is null."""
    if texts.null_count == len(texts):
        return []
    if texts.null_count == 0:
        return [opening, texts, closing]
    both: Callable[[str], Any] = lambda text: pc.if_else(texts.is_valid(), text, "")  # noqa: E731
    return [both(opening), pc.fill_null(texts, ""), both(closing)]


def _is_textual(kind: pa.DataType) -> bool:
    checks = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_binary,
        pa.types.is_large_binary,
    )
    return any(check(kind) for check in checks)


def all_valid(texts: Any, decoder: msgspec.json.Decoder[Any]) -> bool:
    """Is every text one JSON value? False also when it is only hard to say.

    They are read as the members of one array. That each came out as long as it went in shows that
    no text ended early or ran into its neighbour.
    """
    present = texts.drop_null()
    if not len(present):
        return True
    joined = pc.binary_join_element_wise(present, ",", "")
    body = b"".join([b"[", raw_bytes(joined)[:-1], b"]"])
    try:
        values = decoder.decode(body)
        if decoder is _objects:
            values = json_values.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        return False
    lengths = pa.array([len(bytes(raw)) for raw in values], pa.int32())
    return bool(lengths.equals(pc.binary_length(present)))


def _without_mark(text: str) -> str | None:
    members = _object.decode(text)
    members.pop(MARK, None)
    return msgspec.json.encode(members).decode() if members else None


def raw_bytes(texts: Any) -> memoryview:
    """The bytes of a string array's values, one after the other, without a copy."""
    if not len(texts):
        return memoryview(b"")
    _, offsets, data = texts.buffers()
    ends = memoryview(offsets).cast("i")
    return memoryview(data)[ends[texts.offset] : ends[texts.offset + len(texts)]]
