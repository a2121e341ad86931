"""The notation that the tables of messages are written in."""

from __future__ import annotations

import pytest

from headwater.core.errors import InvariantError
from headwater.wire.kafka.fields import NEWEST, NOT_REQUESTED, FieldType, read_schemas

TABLE = """
FETCH flexible 12+
  request
  response
    rack string 11-12 null 12+ tag 3 = ""
    leader row 12+ tag 1
      epoch int32 = -1
    topics rows null 1+
      ids int32[] 2+
      allowed int32 = not_requested
    last bool = true
"""


def test_a_line_says_type_versions_null_tag_and_default() -> None:
    rack, leader, topics, last = read_schemas(TABLE)["FETCH"].response
    assert (rack.name, rack.kind, rack.since, rack.until) == ("rack", FieldType.STRING, 11, 12)
    assert (rack.null_since, rack.null_until, rack.tag, rack.default) == (12, NEWEST, 3, "")
    assert (leader.kind, leader.many, leader.default) == (None, False, {"epoch": -1})
    assert (topics.kind, topics.many, topics.default, topics.null_since) == (None, True, (), 1)
    ids, allowed = topics.rows
    assert (ids.kind, ids.many, ids.since) == (FieldType.INT32, True, 2)
    assert allowed.default == NOT_REQUESTED
    assert last.default is True
    assert not last.is_nullable_in(0)


def test_a_line_that_is_no_field_is_refused() -> None:
    with pytest.raises(InvariantError, match="no line of a table"):
        read_schemas(TABLE.replace("11-12", "11-"))
