"""Every claim of a finished part is shown by a test, and the page says which."""

from __future__ import annotations

from tests.conformance.table import EXPLAINED, PAGE, PARTS_DONE, page, shown


def test_every_claim_of_a_finished_part_is_shown_or_explained() -> None:
    answered = {*shown(), *EXPLAINED}
    missing = [claim for claim in PARTS_DONE if claim not in answered]
    assert not missing, f"claims nobody shows: {missing}"


def test_no_claim_is_both_shown_and_explained_away() -> None:
    assert not set(shown()) & set(EXPLAINED)


def test_the_conformance_page_is_not_stale() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs-conformance`"
