"""`headwater router` through the real script."""

from __future__ import annotations

import pytest

from tests.e2e.cli.conftest import SCRIPT, Shell

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not SCRIPT.exists(), reason="the package is not installed as a script"),
]


def test_a_router_is_put_listed_shown_and_deleted(shell: Shell) -> None:
    shell.good("topic", "create", "cr.in")
    said = shell.good("router", "put", "cr.r", "--source", "cr.in", "--dest", "cr.out")
    assert said == "cr.r: copies everything from cr.in to cr.out, at least once\n"
    made = shell(
        "router", "put", "cr.x", "--source", "cr.in", "--dest", "cr.only", "--filter", "k*",
        "--exactly-once", "--drop-tag", "--json",
    ).json()  # fmt: skip
    assert (made["guarantee"], made["filter"]) == ("exactly_once", "k*")
    assert not made["preserve_tag"]
    shell.good("write", "cr.in", "1", "2")
    listed = shell.good("router", "list", "--prefix", "cr.")
    assert "cr.r" in listed
    assert "k*" in listed
    names = [each["router"] for each in shell("router", "list", "--json").json_lines()]
    assert names == ["cr.r", "cr.x"]
    assert shell("router", "list", "--dest", "cr.only", "--json").json()["router"] == "cr.x"
    shown = shell.good("router", "show", "cr.r")
    assert "forwarded total" in shown
    assert shell("router", "show", "cr.r", "--json").json()["source"] == "cr.in"
    assert shell.good("router", "delete", "cr.r") == "cr.r: removed\n"
    assert "there was none" in shell.good("router", "delete", "cr.r")
    assert shell("router", "delete", "cr.x", "--json").json() == {"router": "cr.x", "deleted": True}
    assert shell.good("router", "list") == "no routers\n"


def test_a_router_that_cannot_be_has_a_reason_and_an_exit_code(shell: Shell) -> None:
    shell.good("topic", "create", "cs.in")
    shell.good("router", "put", "cs.r", "--source", "cs.in", "--dest", "cs.out")
    circle = shell("router", "put", "cs.b", "--source", "cs.out", "--dest", "cs.in")
    assert circle.code == 2
    assert "cs.out -> cs.in -> cs.out" in circle.err
    missing = shell("router", "show", "cs.nothing")
    assert (missing.code, missing.out) == (2, "")
    assert "there is no router" in missing.err
    shell.good("router", "delete", "cs.r")
