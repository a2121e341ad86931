"""Pictures of machines: everything is in them, nothing lies on anything else, no text escapes."""

from __future__ import annotations

from xml.etree import ElementTree

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.engine.machines.drawing.layout import STATE_HEIGHT, lay_out
from headwater.engine.machines.drawing.picture import Picture, mermaid, picture
from headwater.engine.machines.drawing.svg import svg

SVG = "{http://www.w3.org/2000/svg}"
ORDER = picture(
    "order v1",
    ["created", "paid", "shipped", "lost"],
    "created",
    [
        (["created"], "PAY", "paid", "ctx.amount > 0"),
        (["created"], "PAY_LATER", "paid", None),
        (["paid"], "SHIP", "shipped", None),
        (["shipped", "paid"], "REOPEN", "created", None),
        (["paid"], "EDIT", "paid", None),
    ],
    "paid",
)
PATIENT = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
NAMES = st.text(min_size=1, max_size=12)


@st.composite
def pictures(draw: st.DrawFn) -> Picture:
    states = draw(st.lists(NAMES, min_size=1, max_size=8, unique=True))
    state = st.sampled_from(states)
    ways = st.tuples(st.lists(state, min_size=1, max_size=3), NAMES, state, st.none() | NAMES)
    current = draw(st.none() | state)
    return picture("machine", states, draw(state), draw(st.lists(ways, max_size=12)), current)


def shown(drawn: Picture) -> ElementTree.Element:
    return ElementTree.fromstring(svg(drawn))


def test_a_drawing_shows_every_state_and_marks_the_current_one() -> None:
    root = shown(ORDER)
    states = [each for each in root.iter(f"{SVG}g") if "state" in each.get("class", "").split()]
    names = {each.findtext(f"{SVG}text"): each.get("class") for each in states}
    assert names == {
        "created": "state",
        "paid": "state current",
        "shipped": "state",
        "lost": "state",
    }
    labels = [each.findtext(f"{SVG}title") for each in root.iter(f"{SVG}g")]
    assert "PAY [ctx.amount > 0]" in labels
    assert labels.count("REOPEN") == 2


@PATIENT
@given(pictures())
def test_any_machine_gives_a_drawing_that_can_be_read(drawn: Picture) -> None:
    root = shown(drawn)
    assert len([g for g in root.iter(f"{SVG}g") if "state" in g.get("class", "").split()]) == len(
        drawn.states
    )
    assert not list(root.iter(f"{SVG}script"))
    lines = mermaid(drawn).splitlines()
    assert sum("-->" in line for line in lines) == len(drawn.arrows) + 1
    assert all(ord(each) >= 32 for line in lines for each in line)


@PATIENT
@given(pictures())
def test_states_and_labels_never_lie_on_each_other(drawn: Picture) -> None:
    layout = lay_out(drawn)
    boxes = list(layout.boxes.values())
    for number, one in enumerate(boxes):
        assert one.x >= 0
        assert one.x + one.width <= layout.width
        assert one.y + STATE_HEIGHT <= layout.height
        for other in boxes[number + 1 :]:
            beside = one.x + one.width <= other.x or other.x + other.width <= one.x
            below = one.y + STATE_HEIGHT <= other.y or other.y + STATE_HEIGHT <= one.y
            assert beside or below
    rows = [round(path.label_y, 3) for path in layout.paths if not path.is_loop]
    assert len(rows) == len(set(rows)), "two arrows share a row"
    for path in layout.paths:
        assert all(0 <= x <= layout.width and 0 <= y <= layout.height for x, y in path.points)


def test_text_of_strangers_stays_text_in_both_forms() -> None:
    evil = '"]; <script>alert(1)</script> --> & \n x'
    drawn = picture(evil, [evil], evil, [([evil], evil, evil, evil)], evil)
    root = shown(drawn)
    assert not list(root.iter(f"{SVG}script"))
    assert evil.replace("\n", "\ufffd") in [each.text for each in root.iter(f"{SVG}title")]
    told = mermaid(drawn).splitlines()
    assert [line for line in told if "<" in line or ";" in line] != []
    assert not any("<script>" in line for line in told[4:])
    assert len(told) == 4 + 1 + 1 + 1 + 1 + 2


def test_both_colour_schemes_are_in_the_drawing() -> None:
    assert "prefers-color-scheme: dark" in svg(ORDER)
