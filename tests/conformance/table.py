"""docs/conformance.md: which test shows which claim; `make docs-conformance` writes it."""

from __future__ import annotations

import ast
import csv
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CLAIMS = ROOT / "docs" / "claims.tsv"
PAGE = ROOT / "docs" / "conformance.md"

PARTS_DONE = range(1, 401)
"""Claims whose part of the system is there: each must be shown, or be explained below."""

EXPLAINED: dict[int, str] = {
    113: "there is none, as the document says: nothing to show",
    143: "a statement about 64-bit hashes; that the checksum has 64 bits is shown by 128",
    152: "a matter of measuring: `make bench`",
    165: "frames are immutable bytes here; a reused buffer would be shared with the tail cache",
    176: "a property of disks: `make bench` tells what this one does",
    177: "there are no locks: one owner touches state, see docs/decisions",
    180: "a matter of measuring: `make bench`",
    208: "of a phase this software never had: it always persists",
    243: "decided per topic and shard: shown by 192",
    298: "msgpack here, with magic, version, length and checksum",
    348: "delivery has one owner, the event loop, so there is nothing to spread over shards",
    349: "delivery is not sharded, see 348; the log is: shown by 154",
    350: "there are no locks: one owner touches state, see docs/decisions",
    351: "there are no locks, so none can be taken in the wrong order",
    356: "delivery is not sharded, see 348; topics take turns: shown by 334",
    358: "bounded in bytes: 1024 frames of the usual size, so a few long ones cannot fill memory",
    368: "one event loop, a thread for each log and a reader pool: design.md section 1",
    369: "the reader pool has a setting of its own, reader_threads",
    372: "a matter of measuring: `make bench-server`",
    373: "a matter of measuring: `make bench-server`",
    374: "a property of disks: `headwater doctor` tells what this one does",
    375: "a matter of measuring: `make bench-server`",
    376: "a matter of measuring: `make bench-server`",
    377: "a matter of measuring: `make bench-server`",
    378: "a matter of measuring: `make bench-server`",
}


def claims() -> dict[int, str]:
    with CLAIMS.open(encoding="utf-8") as lines:
        return {int(row["id"]): row["claim"] for row in csv.DictReader(lines, delimiter="\t")}


def shown() -> dict[int, list[str]]:
    """Claim -> the tests that name it."""
    found: dict[int, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for claim, test in _marks(path):
            found.setdefault(claim, []).append(test)
    return found


def _marks(path: Path) -> Iterator[tuple[int, str]]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    where = path.relative_to(ROOT)
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).endswith(
                "mark.claims"
            ):
                for argument in decorator.args:
                    for claim in _ids(argument):
                        yield claim, f"`{where}::{node.name}`"


def _ids(argument: ast.expr) -> list[int]:
    if isinstance(argument, ast.Starred):
        inner = argument.value
        if isinstance(inner, ast.Call) and ast.unparse(inner.func) == "range":
            return list(range(*[int(ast.literal_eval(part)) for part in inner.args]))
        return [int(value) for value in ast.literal_eval(inner)]
    return [int(ast.literal_eval(argument))]


def page() -> str:
    tests, texts = shown(), claims()
    lines = [
        "# Conformance",
        "",
        "Each claim of the specification and the tests that show it. `make docs-conformance`",
        "writes this page; a test fails when it is stale or a finished part's claim is not shown.",
        "",
        "| claim | says | shown by |",
        "|---|---|---|",
    ]
    for claim in PARTS_DONE:
        by = "<br>".join(tests.get(claim, [])) or f"not by a test: {EXPLAINED.get(claim, '')}"
        lines.append(f"| {claim} | {texts[claim].replace('|', chr(92) + '|')} | {by} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE.name}\n")
