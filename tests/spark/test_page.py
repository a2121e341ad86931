"""What docs/spark.md shows in Python is what happens."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import headwater.spark

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
SAYS = {
    'session("totals")': "[Row(tag='paid', sum(total)=39)]",
    'session("what is there")': "[('orders', 10)]",
    'session("following")': "10",
    'session("reading")': (
        '[Row(seq=9, data=\'{"user":"ada","total":8}\'), '
        'Row(seq=10, data=\'{"user":"ada","total":9}\')]\n'
        "[Row(seq=11, invalid='Expected `int | null`, got `str` - at `$.total`')]"
    ),
}


def blocks() -> list[str]:
    text = PAGE.read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("sign", SAYS)
def test_the_examples_of_the_page_run(
    spark: SparkSession,
    sign: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With the session of the tests, which runs in another directory."""

    def session(*_: Any, **__: Any) -> SparkSession:
        return spark

    monkeypatch.setattr(headwater.spark, "session", session)
    (block,) = [text for text in blocks() if sign in text]
    block = block.replace("shop-data", str(tmp_path / "shop-data"))
    exec(compile(block, str(PAGE), "exec"), {})
    assert capsys.readouterr().out.strip() == SAYS[sign]
