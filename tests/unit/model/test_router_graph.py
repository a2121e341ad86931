"""Which topics may feed which, and what goes with a topic that is deleted."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from headwater.core.errors import (
    FormatError,
    InvalidRequestError,
    OverloadedError,
    RouterCycleError,
    TopicExistsIncompatibleError,
)
from headwater.model.router import (
    HOPS_MAX,
    Guarantee,
    RouterGraph,
    may_hop,
    router_settings,
    stored_router,
)


def router(source: str, dest: str, **more: Any) -> Any:
    return router_settings({"source": source, "dest": dest, **more})


def chain(*topics: str) -> RouterGraph:
    graph = RouterGraph()
    for source, dest in pairwise(topics):
        graph.put(f"{source}>{dest}", router(source, dest))
    return graph


def test_a_definition_has_the_defaults_of_the_contract() -> None:
    settings = router("a", "b")
    assert settings.to_stored() == {
        "source": "a",
        "dest": "b",
        "preserve_node": True,
        "preserve_tag": True,
        "create_dest": True,
        "filter": None,
        "allow_cycle": False,
        "guarantee": "at_least_once",
    }
    assert settings.matcher is None
    assert stored_router(settings.to_stored()) == settings


@pytest.mark.parametrize(
    ("given", "shown"), [("a*", "a*"), (["tag", "Eq", "x"], "x"), (["tag", "Glob", "x*"], "x*")]
)
def test_a_filter_is_a_match_and_is_kept_as_its_short_form(given: object, shown: str) -> None:
    settings = router("a", "b", filter=given)
    assert settings.filter == shown
    assert settings.matcher is not None
    assert settings.matcher.matches(b"x") is shown.startswith("x")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"source": "a"}, "needs a dest"),
        ({"dest": "a"}, "needs a source"),
        ({"source": "a", "dest": "../b"}, "topic must be"),
        ({"source": "a", "dest": "b", "speed": 1}, "no 'speed'"),
        ({"source": "a", "dest": "b", "preserve_tag": 1}, "preserve_tag must be true or false"),
        ({"source": "a", "dest": "b", "guarantee": "maybe"}, "at_least_once or exactly_once"),
        ({"source": "a", "dest": "b", "filter": "a*b*"}, "one star"),
    ],
)
def test_a_definition_that_cannot_be_is_refused_by_name(
    given: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        router_settings(given)


def test_a_stored_definition_from_a_newer_version_is_refused() -> None:
    with pytest.raises(FormatError, match="speed"):
        stored_router({"source": "a", "dest": "b", "speed": 1})


@pytest.mark.parametrize("name", ["", "../x", "-x", "a b", 7])
def test_a_router_name_is_checked_before_anything_else(name: object) -> None:
    with pytest.raises(InvalidRequestError, match="router's name"):
        RouterGraph().put(name, router("a", "b"))  # type: ignore[arg-type]


def test_a_circle_is_refused_with_the_whole_way_round() -> None:
    graph = chain("a", "b", "c", "d")
    with pytest.raises(RouterCycleError, match="d -> a -> b -> c -> d") as refusal:
        graph.put("back", router("d", "a"))
    assert refusal.value.detail == {"path": ["d", "a", "b", "c", "d"]}
    assert refusal.value.code == "router_cycle"
    assert graph.get("back") is None
    with pytest.raises(RouterCycleError, match="d -> d"):
        graph.put("self", router("d", "d"))


def test_a_long_way_without_a_circle_is_no_circle() -> None:
    graph = chain(*(f"t{number}" for number in range(2_000)))
    graph.put("short", router("t0", "elsewhere"))
    assert graph.way("t0", "t1999") == [f"t{number}" for number in range(2_000)]
    assert not graph.is_in_circle("t0>t1")


def test_a_circle_that_is_asked_for_counts_its_hops() -> None:
    graph = chain("a", "b", "c")
    graph.put("back", router("c", "a", allow_cycle=True))
    graph.put("out", router("c", "d"))
    assert [name for name in graph if graph.is_in_circle(name)] == ["a>b", "b>c", "back"]
    assert [may_hop(hops) for hops in (0, 7, 8)] == [True, True, False]
    assert HOPS_MAX == 8


@pytest.mark.claims(354)
def test_a_destination_takes_copies_of_one_source_only() -> None:
    graph = chain("a", "b")
    with pytest.raises(TopicExistsIncompatibleError, match="fed from 'a'") as refusal:
        graph.put("second", router("other", "b"))
    assert refusal.value.detail is not None
    assert refusal.value.detail["reason"] == "router_dest_fan_in"
    assert graph.put("same-source", router("a", "b", filter="x*"))
    assert graph.source_of("b") == "a"
    assert graph.source_of("a") is None


@pytest.mark.parametrize("first", list(Guarantee))
def test_exactly_once_shares_its_destination_with_no_other_router(first: Guarantee) -> None:
    second = {Guarantee.AT_LEAST_ONCE, Guarantee.EXACTLY_ONCE} - {first}
    graph = RouterGraph()
    graph.put("one", router("a", "b", guarantee=first.value))
    with pytest.raises(TopicExistsIncompatibleError, match="no other"):
        graph.put("two", router("a", "b", guarantee=second.pop().value))
    graph.remove("one")
    assert graph.put("two", router("x", "b"))


def test_putting_a_router_again_changes_nothing_and_another_one_is_refused() -> None:
    graph = chain("a", "b")
    assert graph.put("a>b", router("a", "b")) is False
    with pytest.raises(TopicExistsIncompatibleError, match="copies between other topics"):
        graph.put("a>b", router("a", "b", filter="x"))
    assert len(graph) == 1


def test_there_are_no_more_routers_than_the_limit() -> None:
    graph = RouterGraph(limit=1)
    graph.put("one", router("a", "b"))
    with pytest.raises(OverloadedError) as refusal:
        graph.put("two", router("a", "c"))
    assert refusal.value.detail == {"limit": "routers", "allowed": 1}


def test_a_removed_router_leaves_nothing_of_the_way_it_was() -> None:
    graph = chain("a", "b", "c", "d")
    assert graph.remove("a>b")
    assert graph.remove("b>c")
    assert list(graph) == ["c>d"]
    assert graph.remove("a>b") is None
    assert graph.put("new", router("d", "c", allow_cycle=True))
    assert graph.put("b>a", router("b", "a")), "nothing is left of the way from a to b"
