"""CRC32C of a part of a buffer: compiled and by the library, they are the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.format import crc32c as module
from headwater.format.crc32c import crc32c, crc32c_from
from tests.unit.native.twins import is_compiled, pure

KNOWN = b"123456789", 0xE3069283


@is_compiled
@given(st.binary(max_size=100), st.integers(0, 100))
def test_both_give_the_same_for_any_part_of_any_kind_of_buffer(data: bytes, start: int) -> None:
    start = min(start, len(data))
    expected = crc32c(data[start:])
    for buffer in (data, bytearray(data), memoryview(data)):
        assert crc32c_from(buffer, start) == expected
        assert pure(crc32c_from, module, buffer, start) == expected


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 65_535, 65_536, 65_537, 200_003])
def test_long_buffers_are_no_different(length: int) -> None:
    data = bytes(range(256)) * (length // 256 + 1)
    assert crc32c_from(memoryview(data)[:length], 0) == crc32c(data[:length])


def test_it_is_the_checksum_everybody_else_means() -> None:
    data, expected = KNOWN
    assert crc32c_from(b"in front" + data, len(b"in front")) == expected
