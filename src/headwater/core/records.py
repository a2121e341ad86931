"""A record as readers get it. Payload and meta stay the bytes that were sent until asked for."""

from __future__ import annotations

from typing import Any

import msgspec

from headwater.core.errors import InvalidPayloadError

_decode = msgspec.json.Decoder().decode


class Record:
    """One record of a topic. `data` and `meta` are parsed when first asked for."""

    __slots__ = ("_data", "_meta", "data_json", "meta_json", "node", "seq", "tag", "ts")

    def __init__(
        self,
        seq: int,
        ts: int,
        node: str | None,
        tag: str | None,
        data_json: bytes,
        meta_json: bytes | None,
    ) -> None:
        self.seq = seq
        self.ts = ts
        self.node = node
        self.tag = tag
        self.data_json = data_json
        self.meta_json = meta_json
        self._data: Any = _UNREAD
        self._meta: Any = _UNREAD

    @property
    def data(self) -> Any:
        if self._data is _UNREAD:
            self._data = self._parsed("data", self.data_json)
        return self._data

    @property
    def meta(self) -> dict[str, Any] | None:
        if self._meta is _UNREAD:
            given = self.meta_json
            self._meta = None if given is None else self._parsed("meta", given)
        meta: dict[str, Any] | None = self._meta
        return meta

    def _parsed(self, field: str, text: bytes) -> Any:
        try:
            return _decode(text)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise InvalidPayloadError(
                f"seq {self.seq}: {field} is JSON that cannot be a value of Python ({error}); "
                f"{field}_json has it as it was written"
            ) from error

    def __repr__(self) -> str:
        tag = "" if self.tag is None else f", tag={self.tag!r}"
        return f"Record(seq={self.seq}, ts={self.ts}{tag}, data={self.data_json[:80]!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((self.seq, self.data_json))

    def _key(self) -> tuple[Any, ...]:
        return (self.seq, self.ts, self.node, self.tag, self.data_json, self.meta_json)


_UNREAD: Any = object()
