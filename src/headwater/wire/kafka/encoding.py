"""From a table of fields to a function that writes them.

What is written goes to a `Sink`: bytes of our own making are joined as they come, record batches
stay the buffers they are. A value that is not given is the field's default; a name that is in no
field is an error of ours and said so.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from headwater.core.errors import InvariantError
from headwater.wire.kafka.fields import Fields, FieldType, MessageField, compile_steps, unsigned

Chunk = bytes | bytearray | memoryview
Encode = Callable[["ByteSink", Any], None]
Step = Callable[["ByteSink", Mapping[str, Any]], None]

_INT16: Final = struct.Struct(">h").pack
_INT32: Final = struct.Struct(">i").pack


class ByteSink:
    """Where a message is written to: chunks in order, the last of them still open."""

    __slots__ = ("chunks", "open")

    def __init__(self, start: bytes = b"") -> None:
        self.chunks: list[Chunk] = []
        self.open = bytearray(start)

    def pass_on(self, buffers: list[Chunk]) -> None:
        """Buffers that are sent as they are."""
        self.chunks.append(self.open)
        self.chunks.extend(buffers)
        self.open = bytearray()

    def finish(self) -> list[Chunk]:
        if self.open:
            self.chunks.append(self.open)
        return self.chunks


def compile_encoder(fields: Fields, version: int, *, flexible: bool) -> Encode:
    """A function that writes these fields as they are in one version."""
    names = frozenset(field.name for field in fields)
    steps = compile_steps(fields, version, flexible, _fixed_step, _named_step, _tagged_step)

    def encode(sink: ByteSink, values: Mapping[str, Any]) -> None:
        if not values.keys() <= names:
            raise InvariantError(f"no such fields: {sorted(values.keys() - names)}")
        for step in steps:
            step(sink, values)

    return encode


def _fixed_step(fields: list[MessageField]) -> Step:
    pack = struct.Struct(">" + "".join(field.kind.value for field in fields if field.kind)).pack
    named = [(field.name, field.default) for field in fields]

    def step(sink: ByteSink, values: Mapping[str, Any]) -> None:
        sink.open += pack(*[values.get(name, default) for name, default in named])

    return step


def _named_step(field: MessageField, version: int, flexible: bool) -> Step:
    name, default = field.name, field.default
    encode = _encoder_of(field, version, flexible)

    def step(sink: ByteSink, values: Mapping[str, Any]) -> None:
        encode(sink, values.get(name, default))

    return step


def _encoder_of(field: MessageField, version: int, flexible: bool) -> Encode:
    write = _bare_encoder_of(field, version, flexible)
    nullable = field.is_nullable_in(version)
    short = field.kind is FieldType.STRING and not field.many
    null = b"\x00" if flexible else (_INT16 if short else _INT32)(-1)

    def encode(sink: ByteSink, value: Any) -> None:
        if value is not None:
            write(sink, value)
        elif nullable:
            sink.open += null
        else:
            raise InvariantError(f"{field.name} cannot be null in version {version}")

    return encode


def _bare_encoder_of(field: MessageField, version: int, flexible: bool) -> Encode:
    """What writes a value that is not null."""
    if field.many:
        each = (
            compile_encoder(field.rows, version, flexible=flexible)
            if field.kind is None
            else _scalar(field.kind, flexible)
        )
        return (_rows if field.kind is None else _array)(each, flexible)
    if field.kind is None:
        return compile_encoder(field.rows, version, flexible=flexible)
    return _scalar(field.kind, flexible)


def _compact_length(number: int) -> bytes:
    return unsigned(number + 1)


def text_bytes(text: str, *, flexible: bool) -> bytes:
    """A text as it is written, with its length."""
    written = text.encode()
    return (_compact_length if flexible else _INT16)(len(written)) + written


def _scalar(kind: FieldType, flexible: bool) -> Encode:
    if kind.is_fixed:
        pack = struct.Struct(f">{kind.value}").pack

        def fixed(sink: ByteSink, value: Any) -> None:
            sink.open += pack(value)

        return fixed
    if kind is FieldType.RECORDS:
        return _records(flexible)
    length = _compact_length if flexible else (_INT16 if kind is FieldType.STRING else _INT32)
    text = kind is FieldType.STRING

    def sized(sink: ByteSink, value: Any) -> None:
        written = value.encode() if text else value
        sink.open += length(len(written))
        sink.open += written

    return sized


def _records(flexible: bool) -> Encode:
    """Record batches: one buffer, or several in order. None of them is copied."""
    length = _compact_length if flexible else _INT32

    def encode(sink: ByteSink, value: Chunk | list[Chunk]) -> None:
        buffers = value if isinstance(value, list) else [value]
        sink.open += length(sum(map(len, buffers)))
        if buffers:
            sink.pass_on(buffers)

    return encode


def _array(each: Encode, flexible: bool) -> Encode:
    length = _compact_length if flexible else _INT32

    def encode(sink: ByteSink, values: Any) -> None:
        sink.open += length(len(values))
        for value in values:
            each(sink, value)

    return encode


def _rows(each: Encode, flexible: bool) -> Encode:
    """Rows of fields. One that is given as bytes is written already."""
    length = _compact_length if flexible else _INT32

    def encode(sink: ByteSink, values: Any) -> None:
        sink.open += length(len(values))
        for value in values:
            if type(value) is bytes:
                sink.open += value
            else:
                each(sink, value)

    return encode


def _tagged_step(fields: list[MessageField], version: int) -> Step:
    """Only what differs from its default is sent, in the order of the tags."""
    known = [
        (field, unsigned(field.tag), _encoder_of(field, version, True))
        for field in sorted(fields, key=lambda field: field.tag or 0)
        if field.tag is not None
    ]

    def step(sink: ByteSink, values: Mapping[str, Any]) -> None:
        if not known:
            sink.open += b"\x00"
            return
        sent = []
        for field, tag, encode in known:
            value = values.get(field.name, field.default)
            if value == field.default or (field.many and not value):
                continue
            inner = ByteSink()
            encode(inner, value)
            sent.append((tag, b"".join(inner.finish())))
        sink.open += unsigned(len(sent))
        for tag, written in sent:
            sink.open += tag + unsigned(len(written)) + written

    return step
