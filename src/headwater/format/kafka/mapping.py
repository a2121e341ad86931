"""A Kafka record as a record of a topic, and back. Nothing is lost either way.

| Kafka | Headwater |
|---|---|
| key, UTF-8, at most 256 bytes | `tag` |
| key, other bytes | `tag` in base64, and `meta.$key_encoding` says so |
| key that is too long for a tag | `meta.$key`, no tag |
| value that is JSON, with numbers that readers can hold | `data`, the same bytes |
| value that is not | `data`, base64 text, and `meta.$encoding` says `base64` |
| no value | `data` is `null`; the four letters as a value have `meta.$encoding` `json` |
| headers, each name once, UTF-8 | `meta`, a field each |
| other headers | `meta.$headers`: all of them, in order, `[name, base64 or null]` |

The other way, meta fields that are no text are headers with their JSON, which a header `$json`
behind all of them names, and a `node` is the last header, `$node`. Headers of these names that are
not just as they would be written are among the other ones. Pure functions over bytes.

What every protocol but Kafka's own reads of a partition are its batches as frames (`BatchFrames`):
the server reads partitions so for HTTP, and Spark's tasks read them so from files.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from headwater.core.errors import FormatError
from headwater.core.limits import NODE_BYTES_MAX, TAG_BYTES_MAX
from headwater.format.appends import Appends, encode_appends
from headwater.format.frame import FrameFlag, join_data
from headwater.format.kafka.batch import read_header
from headwater.format.kafka.records import decode_records
from headwater.native import compiled

Headers = Sequence[tuple[str, bytes | None]]

ENCODING: Final = "$encoding"
KEY_ENCODING: Final = "$key_encoding"
KEY: Final = "$key"
HEADERS: Final = "$headers"
NODE: Final = "$node"
JSON_NAMES: Final = "$json"
_BASE64: Final = "base64"
_OWN: Final = "$"

_HAS_TAG: Final = int(FrameFlag.HAS_TAG)
_HAS_NODE: Final = int(FrameFlag.HAS_NODE)
_HAS_META: Final = int(FrameFlag.HAS_META)

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_check_json = msgspec.json.Decoder(msgspec.Raw).decode
_decode_names = msgspec.json.Decoder(list[str]).decode
_decode_text = msgspec.json.Decoder(str).decode
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_headers = msgspec.json.Decoder(list[tuple[str, str | None]]).decode


class KafkaFields(NamedTuple):
    """What a Kafka record says, apart from its offset and time."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class NativeFields(NamedTuple):
    """What a record of a topic says; `flags` tell which of the parts are there."""

    flags: int
    node: bytes
    tag: bytes
    data: bytes
    meta: bytes | None

    @property
    def joined(self) -> bytes:
        """Data and meta as a frame holds them."""
        return join_data(self.data, self.meta)


# -- from Kafka


def to_native(key: bytes | None, value: bytes | None, headers: Headers) -> NativeFields:
    """A Kafka record as a record of a topic."""
    meta: dict[str, Any] = {}
    flags, node, tag = 0, b"", b""
    if headers:
        node = _meta_of_headers(headers, meta)
        flags |= _HAS_NODE if node else 0
    if key is not None:
        tag, has_tag = _tag_of_key(key, meta)
        flags |= _HAS_TAG if has_tag else 0
    data = _data_of_value(value, meta)
    if not meta:
        return NativeFields(flags, node, tag, data, None)
    return NativeFields(flags | _HAS_META, node, tag, data, _encode(meta))


def _tag_of_key(key: bytes, meta: dict[str, Any]) -> tuple[bytes, bool]:
    text = _text(key)
    if text is None:
        meta[KEY_ENCODING] = _BASE64
        key = base64.b64encode(key)
        text = key.decode()
    if len(key) <= TAG_BYTES_MAX:
        return key, True
    meta[KEY] = text
    return b"", False


def _data_of_value(value: bytes | None, meta: dict[str, Any]) -> bytes:
    if value is None:
        return b"null"
    if is_json(value):
        if len(value) < _NULL_LENGTH_MAX and value.strip() == b"null":
            meta[ENCODING] = "json"  # a value that says null is not the same as none
        return value
    meta[ENCODING] = _BASE64
    return b'"%b"' % base64.b64encode(value)


_NULL_LENGTH_MAX: Final = 64


_DIGITS: Final = bytes.maketrans(b"0123456789E", b"0000000000e")
_LARGE: Final = (b"0e000", b"0e+000", b"0" * 200)
"""One of these is in every number that may be too large, once all digits are zeros."""
_TEXT: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_NUMBER: Final = re.compile(rb"-?[0-9][0-9.eE+-]*")


def may_be_large(text: bytes) -> bool:
    """Of bytes that are JSON: False when every number outside its strings surely has room."""
    digits = text.translate(_DIGITS)
    return any(each in digits for each in _LARGE)


_native: Final = compiled("numbers")
_may_be_large: Final[Callable[[bytes], bool]] = (
    may_be_large if _native is None else _native.may_be_large
)


def is_json(value: bytes) -> bool:
    """Whether these bytes can be embedded in an answer as they are, and readers decode them."""
    try:
        if not value.isascii():
            value.decode()
        _check_json(value)
        if _may_be_large(value):
            # Not the whole value, which could take many times its bytes.
            for number in _NUMBER.finditer(_TEXT.sub(b"", value)):
                _decode(number.group())
    except (UnicodeDecodeError, msgspec.MsgspecError, RecursionError):
        return False
    return True


def _meta_of_headers(headers: Headers, meta: dict[str, Any]) -> bytes:
    """Fills `meta`; gives the node, if a header tells one."""
    plain = _plain_headers(headers)
    if plain is None:
        meta[HEADERS] = [
            [name, None if value is None else base64.b64encode(value).decode()]
            for name, value in headers
        ]
        return b""
    fields, node = plain
    meta.update(fields)
    return node


def _plain_headers(headers: Headers) -> tuple[dict[str, Any], bytes] | None:
    """Headers as fields, and the node; None when that would lose something, or their order."""
    fields: dict[str, Any] = {}
    for name, value in headers:
        text = None if value is None else _text(value)
        if name in fields or (value is not None and text is None):
            return None
        fields[name] = text
    node, json_names = fields.pop(NODE, ""), fields.pop(JSON_NAMES, "")
    if any(name.startswith(_OWN) for name in fields):
        return None
    if node == "" and json_names == "":
        return None if len(fields) < len(headers) else (fields, b"")
    if node is None or json_names is None or not _fits_node(node):
        return None
    if json_names and not _take_json(fields, json_names):
        return None
    # As they are written, or not at all.
    again = _literal_headers(_decode_fields(_encode(fields)))
    again += [(NODE, node.encode())] if node else []
    return (fields, node.encode()) if again == list(headers) else None


def _take_json(fields: dict[str, Any], json_names: str) -> bool:
    """Makes JSON of the fields that are named; False when that cannot be."""
    try:
        names = _decode_names(json_names)
    except msgspec.MsgspecError:
        return False
    for name in names:
        text = fields.get(name)
        if not isinstance(text, str) or not is_json(text.encode()):
            return False
        fields[name] = msgspec.Raw(text.encode())
    return True


def _fits_node(text: str) -> bool:
    return len(text.encode()) <= NODE_BYTES_MAX


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


# -- to Kafka


def to_kafka(tag: bytes | None, node: bytes | None, data: bytes, meta: bytes | None) -> KafkaFields:
    """A record of a topic as a Kafka record. FormatError when its meta contradicts its data."""
    key, headers = tag, list[tuple[str, bytes | None]]()
    if meta is None:
        value = None if data == b"null" else data
    else:
        fields = _decode_fields(meta)
        key = _key(tag, fields)
        value = _value(data, fields)
        headers = _headers(fields)
    if node:
        headers.append((NODE, node))
    return KafkaFields(key, value, headers)


def to_kafka_as_it_is(
    tag: bytes | None, node: bytes | None, data: bytes, meta: bytes | None
) -> KafkaFields:
    """The same for a record that is stored already: what contradicts itself is taken literally."""
    try:
        return to_kafka(tag, node, data, meta)
    except FormatError:
        headers = [] if meta is None else _literal_headers(_decode_fields(meta))
        if node:
            headers.append((NODE, node))
        return KafkaFields(tag, data, headers)


def _key(tag: bytes | None, fields: dict[str, msgspec.Raw]) -> bytes | None:
    encoding = _word(fields.pop(KEY_ENCODING, None), KEY_ENCODING)
    long_key = fields.pop(KEY, None)
    if encoding not in (None, _BASE64):
        raise FormatError(f"meta.{KEY_ENCODING} can be base64 only")
    if long_key is not None:
        if tag is not None:
            raise FormatError(f"meta.{KEY} stands in for a tag, and there is a tag")
        tag = (_word(long_key, KEY) or "").encode()
    if encoding is None:
        return tag
    if tag is None:
        raise FormatError(f"meta.{KEY_ENCODING} is about a tag, and there is none")
    return _unbase64(tag, "the tag")


def _value(data: bytes, fields: dict[str, msgspec.Raw]) -> bytes | None:
    encoding = _word(fields.get(ENCODING), ENCODING)
    is_null = len(data) < _NULL_LENGTH_MAX and data.strip() == b"null"
    if encoding is None:
        return None if is_null else data
    del fields[ENCODING]
    if encoding == "json" and is_null:
        return data
    if encoding != _BASE64:
        raise FormatError(f"meta.{ENCODING} can be base64, or json for null")
    text = _word(msgspec.Raw(data), "data")
    return _unbase64((text or "").encode(), "data")


def _headers(fields: dict[str, msgspec.Raw]) -> list[tuple[str, bytes | None]]:
    whole = fields.pop(HEADERS, None)
    headers: list[tuple[str, bytes | None]] = []
    if whole is not None:
        try:
            decoded = _decode_headers(whole)
        except msgspec.MsgspecError as error:
            raise FormatError(
                f"meta.{HEADERS} must be a list of [name, base64]: {error}"
            ) from error
        headers += [
            (name, None if value is None else _unbase64(value.encode(), HEADERS))
            for name, value in decoded
        ]
    for name in fields:
        if name.startswith(_OWN):
            raise FormatError(f"meta.{name}: names that begin with $ have a meaning of their own")
    return headers + _literal_headers(fields)


def _literal_headers(fields: dict[str, msgspec.Raw]) -> list[tuple[str, bytes | None]]:
    headers: list[tuple[str, bytes | None]] = []
    json_names: list[str] = []
    for name, raw in fields.items():
        given = bytes(raw)
        if given == b"null":
            headers.append((name, None))
        elif given.startswith(b'"'):
            headers.append((name, _decode_text(given).encode()))
        else:
            headers.append((name, given))
            json_names.append(name)
    if json_names:
        headers.append((JSON_NAMES, _encode(json_names)))
    return headers


def _word(raw: msgspec.Raw | None, name: str) -> str | None:
    if raw is None:
        return None
    try:
        return _decode_text(raw)
    except msgspec.MsgspecError as error:
        raise FormatError(f"{name} must be text here") from error


def _unbase64(text: bytes, where: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise FormatError(f"{where} is said to be base64 and is not") from error


class BatchFrames:
    """Records of a partition from an offset on, a list for each field of their frames."""

    def __init__(self, first_offset: int, limit: int) -> None:
        self._first_offset = first_offset
        self._limit = limit
        self._times: list[int] = []
        self._flags: list[int] = []
        self._nodes: list[bytes] = []
        self._tags: list[bytes] = []
        self._datas: list[bytes] = []

    def __len__(self) -> int:
        return len(self._times)

    @property
    def is_full(self) -> bool:
        return len(self._times) >= self._limit

    @property
    def next_offset(self) -> int:
        return self._first_offset + len(self._times)

    def add(self, batch: bytes | memoryview, base_offset: int | None = None) -> None:
        """The records of the next batch. A BatchError when they cannot be read: then none is in.

        `base_offset` is what the batch itself says, unless it is given.
        """
        base = read_header(batch).base_offset if base_offset is None else base_offset
        for record in decode_records(batch)[max(self.next_offset - base, 0) :]:
            if self.is_full:
                return
            fields = to_native(record.key, record.value, record.headers)
            self._times.append(max(record.timestamp_ms, 0))
            self._flags.append(fields.flags)
            self._nodes.append(fields.node)
            self._tags.append(fields.tag)
            self._datas.append(fields.joined)

    def frames(self) -> Appends:
        """In order; `$seq` is the offset plus one."""
        return encode_appends(
            0, self._first_offset + 1, self._times, self._flags, self._nodes, self._tags,
            self._datas,
        )  # fmt: skip
