"""CURRENT, REPAIRS and the names of files: what is written is read, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.errors import FormatError
from headwater.format.checksum import checksum64
from headwater.format.log_state import (
    CURRENT_BYTES_MAX,
    Current,
    Repairs,
    Skip,
    decode_current,
    decode_repairs,
    encode_current,
    encode_repairs,
)
from headwater.format.names import (
    parse_shard_directory_name,
    parse_wal_file_name,
    shard_directory_name,
    wal_file_name,
)

NUMBER = st.integers(0, 10**16 - 1)
U64 = st.integers(0, 2**64 - 1)


@given(NUMBER, U64, U64, NUMBER, U64)
def test_a_current_line_is_read_back_and_fits_its_limit(
    active: int, active_bytes: int, durable: int, oldest: int, log_id: int
) -> None:
    current = Current(active, active_bytes, durable, oldest, log_id)
    line = encode_current(current)
    assert decode_current(line) == current
    assert len(line) <= CURRENT_BYTES_MAX
    assert line.endswith(b"\n")


def sealed(body: bytes) -> bytes:
    return body + f" xxh3={checksum64(body):016x}\n".encode()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"wal-0000000000000001.log",
        b"wal-1.log bytes=1 durable=0 oldest=wal-0000000000000001.log log=0000000000000001",
        b"wal-0000000000000001.log bytes= durable=0 oldest=wal-0000000000000001.log log=1",
        b"wal-0000000000000001.log 1024 0 wal-0000000000000001.log 0000000000000001",
        b"wal-0000000000000001.log bytes=-1 durable=0 oldest=wal-0000000000000001.log "
        b"log=0000000000000001",
        b"wal-0000000000000001.log bytes=" + b"9" * 5_000 + b" durable=0 "
        b"oldest=wal-0000000000000001.log log=0000000000000001",
        "wal-0000000000000001.log bytes=\N{SUPERSCRIPT TWO} durable=0 ".encode()
        + b"oldest=wal-0000000000000001.log log=0000000000000001",
        b"\xff\xfe",
    ],
)
def test_a_current_line_we_did_not_write_is_a_format_error_though_sealed(body: bytes) -> None:
    with pytest.raises(FormatError, match="not the line"):
        decode_current(sealed(body))


def test_repairs_are_read_back_and_found_by_file() -> None:
    repairs = Repairs((Skip(1, 10, 20, "a"), Skip(2, 0, -1, "b"), Skip(1, 30, 30, "c")))
    assert decode_repairs(encode_repairs(repairs)) == repairs
    assert repairs.of_file(1) == {10: 20, 30: 30}
    assert repairs.of_file(3) == {}


def sealed_repairs(body: bytes) -> bytes:
    return body + f"\nxxh3={checksum64(body):016x}\n".encode()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"skips":[1]}',
        b'{"skips":[],"more":1}',
        b'{"skips":[{"file":1,"offset":20,"resume":10,"reason":"back"}]}',
        b'{"skips":[{"file":1,"offset":20,"resume":-2,"reason":"back"}]}',
        b'{"skips":[{"file":1,"offset":-1,"resume":10,"reason":"before"}]}',
        b'{"skips":[{"file":0,"offset":1,"resume":10,"reason":"no file"}]}',
        b'{"skips":[{"file":1,"offset":1,"resume":10,"reason":"\xff"}]}',
        b"[" * 5_000,
    ],
)
def test_repairs_that_go_nowhere_are_a_format_error_though_sealed(body: bytes) -> None:
    with pytest.raises(FormatError, match="REPAIRS"):
        decode_repairs(sealed_repairs(body))


@pytest.mark.claims(190)
def test_a_log_file_is_named_by_its_first_frame_in_sixteen_digits() -> None:
    assert wal_file_name(1) == "wal-0000000000000001.log"
    assert wal_file_name(70_001) == "wal-0000000000070001.log"
    names = [wal_file_name(number) for number in (9, 10, 99, 1_000_000)]
    assert names == sorted(names), "zero padded: the highest name is the active file"


@given(st.text(max_size=30))
def test_only_names_we_give_are_taken_for_ours(name: str) -> None:
    number = parse_wal_file_name(name)
    assert number is None or wal_file_name(number) == name
    shard = parse_shard_directory_name(name)
    assert shard is None or shard_directory_name(shard) == name


@pytest.mark.claims(156)
@pytest.mark.parametrize(("shard", "name"), [(0, "shard-00"), (7, "shard-07"), (99, "shard-99")])
def test_a_shard_directory_has_two_digits(shard: int, name: str) -> None:
    assert shard_directory_name(shard) == name
    assert parse_shard_directory_name(name) == shard


ARABIC_ONE = "0000000000000001".translate({ord("1"): "\N{ARABIC-INDIC DIGIT ONE}"})


@pytest.mark.parametrize(
    "name",
    [
        "wal-1.log",
        "wal-00000000000000001.log",
        "wal-000000000000000a.log",
        "WAL-0000000000000001.log",
        "wal-0000000000000001.log.tmp",
        "wal-0000000000000001.log\n",
        f"wal-{ARABIC_ONE}.log",
    ],
)
def test_a_name_that_only_looks_like_ours_is_not(name: str) -> None:
    assert parse_wal_file_name(name) is None
