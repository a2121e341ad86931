"""A part that is away: every use of it gets its own error with the place; the others get none."""

from __future__ import annotations

import errno
from pathlib import PurePath

import pytest

from headwater.core.errors import AccessError, DamageError, StorageError
from headwater.engine.state.damage import Part, Parts

PLACE = PurePath("/data/machines")


def test_a_part_that_is_away_is_refused_with_file_and_offset_and_the_others_are_not() -> None:
    parts = Parts()
    parts.require(Part.MACHINES)
    reason = DamageError("bad bytes", path=PLACE / "x.snap", offset=7, advice="repair it")
    parts.set_away(Part.MACHINES, reason, PLACE)
    with pytest.raises(DamageError, match="the machines are not served: bad bytes") as caught:
        parts.require(Part.MACHINES)
    assert (caught.value.path, caught.value.offset) == (PLACE / "x.snap", 7)
    assert caught.value.detail == {
        "part": "machines",
        "what": "bad bytes",
        "file": str(PLACE / "x.snap"),
        "offset": 7,
        "advice": "repair it",
    }
    assert parts.details() == [caught.value.detail]
    parts.require(Part.KAFKA)
    assert parts.error(Part.KAFKA) is None


def test_each_use_gets_an_error_of_its_own() -> None:
    """One that is raised again and again would gather the frames of all who met it."""
    parts = Parts()
    reason = DamageError("bad bytes", path=PLACE)
    parts.set_away(Part.MACHINES, reason, PLACE)
    found: list[StorageError] = []
    for _ in range(2):
        with pytest.raises(DamageError) as caught:
            parts.require(Part.MACHINES)
        found.append(caught.value)
    assert found[0] is not found[1]
    assert reason.__traceback__ is None


def test_what_the_operating_system_refuses_is_told_in_our_words() -> None:
    parts = Parts()
    refusal = PermissionError(errno.EACCES, "Permission denied", str(PLACE / "wal"))
    parts.set_away(Part.MACHINES, refusal, PLACE)
    with pytest.raises(AccessError, match="permission denied") as caught:
        parts.require(Part.MACHINES)
    assert caught.value.path == PLACE / "wal"
