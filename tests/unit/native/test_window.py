"""The compiled window decides what its pure twin decides."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headwater.native import compiled
from headwater.wal.policy import CommitWindow
from tests.unit.native.twins import is_compiled

steps = st.lists(
    st.one_of(
        st.tuples(st.just("observe"), st.integers(1, 500), st.integers(0, 20_000)),
        st.tuples(st.just("only"), st.integers(0, 5)),
        st.tuples(st.just("pressure"), st.floats(-1, 2)),
        st.tuples(st.just("answered"), st.integers(1, 300), st.integers(0, 900)),
        st.tuples(st.just("returned"), st.integers(0, 50_000)),
    ),
    max_size=30,
)


@is_compiled
@given(steps, st.integers(0, 600))
def test_the_compiled_window_waits_as_long_as_its_twin(
    taken: list[tuple[Any, ...]], waiting: int
) -> None:
    native = compiled("window")
    assert native is not None
    twin: Any = CommitWindow(500, 10_000, overlaps=True)
    window = native.CommitWindow(500, 10_000)
    for name, *values in taken:
        for each in (twin, window):
            if name == "pressure":
                each.set_pressure(*values)
            elif name in ("observe", "only"):
                getattr(each, name)(*values)
            elif name == "answered":
                each.returns.answered(*values, 1_000)
            else:
                each.returns.returned(1_000 + values[0])
        assert (window.expected, window.returns.due) == (twin.expected, twin.returns.due)
        assert window.returns.return_us == twin.returns.return_us
        # A half is rounded up here and to the even number there.
        assert abs(window.wait_us(waiting) - twin.wait_us(waiting)) <= 1
        assert abs(window.relaxed_us(waiting) - twin.relaxed_us(waiting)) <= 1
