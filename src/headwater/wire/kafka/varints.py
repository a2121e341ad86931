"""Numbers of as many bytes as they need: seven bits each, the lowest first."""

from __future__ import annotations

from typing import Final

from headwater.wire.kafka.errors import ProtocolError

_BYTES_MAX: Final = 5
_SMALL: Final = tuple(bytes((number,)) for number in range(128))


def read_unsigned(buffer: bytes | memoryview, at: int) -> tuple[int, int]:
    """The number at this offset and where it ends. Past the end of the bytes: IndexError."""
    byte = buffer[at]
    if byte < 0x80:
        return byte, at + 1
    number, shift = byte & 0x7F, 7
    for index in range(at + 1, at + _BYTES_MAX):
        byte = buffer[index]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number > 0xFFFFFFFF:
                break
            return number, index + 1
        shift += 7
    raise ProtocolError(f"a number at byte {at} has more than 32 bits")


def unsigned(number: int) -> bytes:
    if number < 0x80:
        return _SMALL[number]
    written = bytearray()
    while number >= 0x80:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)
