"""Every face has the same calls: names, keywords, types. What differs stands in a table."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from typing import Any, Final, Required, get_origin, get_type_hints

import msgspec
import pytest

import headwater
from headwater.api import call_list
from headwater.api.async_machines import AsyncMachines
from headwater.api.jobs import WorkOptions
from headwater.api.keywords import RouterKeywords, TopicKeywords, WorkKeywords
from headwater.api.machines import Machines
from headwater.client import call_operations as over_http
from headwater.config.topic import TopicSettings
from headwater.engine import call_operations as embedded
from headwater.engine.read_only import database as read_only
from headwater.model.router import RouterSettings

FACES: Final[dict[str, type]] = {
    "Database": headwater.Database,
    "AsyncDatabase": headwater.AsyncDatabase,
    "Client": headwater.Client,
    "AsyncClient": headwater.AsyncClient,
    "ReadOnlyDatabase": headwater.ReadOnlyDatabase,
}
EMBEDDED: Final = ("Database", "AsyncDatabase")
OWNERS: Final = (*EMBEDDED, "Client", "AsyncClient")
_HERE: Final = "only the process that has a directory open can do something with it"
_READS: Final = "a reader changes nothing"
ONLY_IN: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "checkpoint": (EMBEDDED, _HERE),
    "engine": (EMBEDDED, _HERE),
    "drive": (EMBEDDED, "operations are the engine's own, for its tools"),
    "refresh": (("ReadOnlyDatabase",), "others see changes without looking for them"),
    "bad_frames": (("ReadOnlyDatabase",), "others report damage in status and metrics"),
    "append": (OWNERS, _READS),
    "create": (OWNERS, _READS),
    "delete": (OWNERS, _READS),
    "drop": (OWNERS, _READS),
    "claim": (OWNERS, _READS),
    "ack": (OWNERS, _READS),
    "nack": (OWNERS, _READS),
    "extend": (OWNERS, _READS),
    "requeue": (OWNERS, _READS),
    "work": (OWNERS, _READS),
    "put_router": (OWNERS, _READS),
    "delete_router": (OWNERS, _READS),
    "queue_stats": (OWNERS, "leases are in the memory of their owner"),
    "router": (OWNERS, "how far a router has come is in the memory of its owner"),
    "routers": (OWNERS, "how far a router has come is in the memory of its owner"),
    "machines": (OWNERS, "a reader beside an owner reads topics"),
    "watch_topics": (OWNERS, "a reader polls files for one topic; nothing wakes it for several"),
    "metrics": (OWNERS, "what a reader does says nothing of the owner"),
    "trace": (OWNERS, "what writes waited for is in the memory of their owner"),
    "ready": (OWNERS, "files do not say whether their owner takes writes"),
}
"""Calls that not every face has: which have them, and why the others do not."""
_PLAIN: Final = re.compile(r"\bAsync(?=Iterator|Handler|Machines)")


def calls_of(face: type) -> dict[str, str]:
    """The public names of a face with their signatures, as if all of them blocked."""
    found: dict[str, str] = {}
    for name, member in inspect.getmembers(face):
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            member = member.fget
            assert member is not None
        found[name] = _PLAIN.sub("", str(inspect.signature(member)))
    return found


def test_every_face_has_the_same_calls_with_the_same_keywords() -> None:
    calls = {name: calls_of(face) for name, face in FACES.items()}
    for call in set().union(*calls.values()):
        having = [name for name in FACES if call in calls[name]]
        expected, _reason = ONLY_IN.get(call, (tuple(FACES), ""))
        assert tuple(having) == expected, call
        assert len({calls[name][call] for name in having}) == 1, call
    assert set(ONLY_IN) <= set().union(*calls.values()), "a row for a call that is gone"


def test_machines_have_the_same_calls_for_threads_and_for_event_loops() -> None:
    assert calls_of(Machines) == calls_of(AsyncMachines)


def test_clients_are_made_with_the_same_arguments() -> None:
    made = [
        inspect.signature(each).parameters for each in (headwater.Client, headwater.AsyncClient)
    ]
    assert list(made[0]) == list(made[1])


def test_no_call_takes_keywords_that_are_not_named() -> None:
    for face in (*FACES.values(), Machines, AsyncMachines):
        for name, signature in calls_of(face).items():
            catches_all = re.search(r"\*\*\w+: (?!'?Unpack\[)", signature)
            assert catches_all is None, f"{face.__name__}.{name}{signature}"


def kinds(base: type) -> dict[str, type]:
    """The calls of the list, by the name of the method that makes them."""
    return {
        re.sub(r"(?<!^)(?=[A-Z])", "_", name.removesuffix("Call")).lower(): kind
        for name, kind in vars(call_list).items()
        if isinstance(kind, type) and issubclass(kind, base) and kind is not base
    }


def test_every_call_of_the_list_is_made_by_a_method_and_carried_out_everywhere() -> None:
    answered, watched = kinds(call_list.ApiCall), kinds(call_list.WatchingCall)
    assert {*answered, *watched} <= set(calls_of(headwater.Database))
    for room in (embedded, over_http):
        assert set(room.OPERATIONS) == set(answered.values())
        assert set(room.WATCHES) == set(watched.values())
    assert set(read_only._CALLS) < set(answered.values())
    assert set(read_only._WATCHES) < set(watched.values())


@pytest.mark.parametrize(
    ("keywords", "meant"),
    [
        # An old spelling of two durability classes.
        (TopicKeywords, {*TopicSettings.__struct_fields__, "durable"}),
        # The source of a router is made with it, which is no setting of the router.
        (RouterKeywords, {*RouterSettings.__struct_fields__, "create_source"}),
        (WorkKeywords, {field.name for field in fields(WorkOptions)}),
    ],
)
def test_keywords_are_those_of_the_settings_they_stand_for(keywords: Any, meant: set[str]) -> None:
    assert set(keywords.__annotations__) == meant


def test_a_router_cannot_be_put_without_the_keywords_that_it_needs() -> None:
    needed = {field.name for field in msgspec.structs.fields(RouterSettings) if field.required}
    hints = get_type_hints(RouterKeywords, include_extras=True)
    assert {name for name, kind in hints.items() if get_origin(kind) is Required} == needed


def test_keywords_have_the_types_of_the_options_they_stand_for() -> None:
    given = get_type_hints(WorkKeywords)
    for field in fields(WorkOptions):
        assert given[field.name] == get_type_hints(WorkOptions)[field.name]
