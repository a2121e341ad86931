"""What every segment store must do, whatever it is made of."""

from __future__ import annotations

import pytest

from headwater.core.errors import StorageError
from headwater.format.segment import SegmentPart
from headwater.store.segment_stores import SegmentStore

DATA, IDX = SegmentPart.DATA, SegmentPart.IDX


def check_store(store: SegmentStore) -> None:
    """Put, read, replace, list, delete: the operations of the protocol, in one story."""
    assert list(store.list()) == []
    assert not store.exists(1, DATA)
    store.delete(1)
    for first_seq in (200, 3, 1000, 1):
        store.put(first_seq, b"data of %d" % first_seq, memoryview(b"idx"))
    assert list(store.list()) == [1, 3, 200, 1000]
    assert store.exists(3, DATA)
    assert store.exists(3, IDX)
    assert store.len(200, DATA) == len(b"data of 200")
    assert store.len(200, IDX) == 3
    assert store.read_range(200, DATA, 5, 6) == b"of 200"
    assert store.read_range(200, DATA, 0, 0) == b""
    assert store.read_range(200, IDX, 0, 3) == b"idx"
    store.put(3, b"other", b"entries")
    assert store.read_range(3, DATA, 0, 5) == b"other"
    assert store.read_range(3, IDX, 0, 7) == b"entries"
    for _ in range(2):
        store.delete(3)
        assert list(store.list()) == [1, 200, 1000]
        assert not store.exists(3, DATA)
        assert not store.exists(3, IDX)
    with pytest.raises(StorageError):
        store.len(3, DATA)
    with pytest.raises(StorageError):
        store.read_range(3, DATA, 0, 1)
    with pytest.raises(StorageError):
        store.read_range(1, DATA, 5, 100)
