"""The texts in `kraft_audit/lake/sql` say what Spark and DataFusion understand alike, and nothing else."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest
import sqlglot
from sqlglot import exp

from kraft_audit.lake.catalog import CATALOG_TABLES, views
from kraft_audit.lake.delta_merges import DATAFUSION_WORDS
from kraft_audit.spark.gold_engine import SPARK_WORDS

TEXTS = {path.name: path for path in map(Path, map(str, files("kraft_audit.lake").joinpath("sql").iterdir()))}
SAME_ON_BOTH = frozenset(
    (
        *("array_agg", "array_remove", "array_sort", "bool_or", "cardinality", "coalesce", "concat", "count", "floor"),
        *("greatest", "lag", "last_value", "lead", "least", "lower", "max", "min", "named_struct", "row_number", "sum"),
        "try_cast",
    )
)
"""The functions of the subset. What DataFusion lacks or answers otherwise is not among them: explode, sequence, max_by,
count_if, collect_set, sort_array, size, percentile_approx, division of integers. Names in braces are an engine's."""
OPEN_NAME = re.compile(r"\{([a-z_]+)\}\(")
CALL = re.compile(r"\b([a-z_]+)\s*\(", re.IGNORECASE)
WORDS = frozenset(
    (
        *("as", "in", "over", "filter", "values", "exists", "and", "or", "not", "on", "using", "when", "then", "else"),
        *("where", "by", "from", "array", "cast", "join"),
    )
)


def calls(text: str) -> set[str]:
    """Names before a bracket, without the words of SQL itself."""
    without_texts = re.sub(r"'[^']*'", "", re.sub(r"--[^\n]*", "", text))
    return {name.lower() for name in CALL.findall(without_texts)} - WORDS


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_a_text_for_both_engines_calls_what_both_have(name: str) -> None:
    text = TEXTS[name].read_text("utf-8")
    named_windows = set(re.findall(r"(?:WINDOW|,)\s+([a-z_]+) AS \(", text))
    tables = set(re.findall(r"^(?:WITH )?([a-z_]+)(?: \([^)]*\))? AS \($|\bAS ([a-z_]+) ?\(", text, re.MULTILINE))
    unknown = calls(text) - SAME_ON_BOTH - named_windows - {name for pair in tables for name in pair}
    assert not unknown, f"{name}: not in the subset: {', '.join(sorted(unknown))}"


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_an_order_by_a_time_says_where_nulls_go(name: str) -> None:
    for by in re.findall(
        r"\b(?:from|to|closed)_ms(?: (?:ASC|DESC))?(?: NULLS (?:FIRST|LAST))?", TEXTS[name].read_text("utf-8")
    ):
        assert "DESC" not in by or "NULLS" in by, f"{name}: {by}"


def test_both_engines_name_what_the_texts_of_gold_leave_open() -> None:
    assert SPARK_WORDS.keys() == DATAFUSION_WORDS.keys()
    open_names = {name for path in TEXTS.values() for name in OPEN_NAME.findall(path.read_text("utf-8"))}
    assert open_names == SPARK_WORDS.keys() - {"by_hash"}


def test_every_text_says_what_it_is_for() -> None:
    assert len(TEXTS) > 15
    for name, path in TEXTS.items():
        assert path.read_text("utf-8").startswith("-- "), name


@pytest.mark.parametrize("name", sorted(views(str, CATALOG_TABLES)))
def test_a_view_divides_and_multiplies_as_both_engines_do(name: str) -> None:
    """7/2 is 3 on one engine and 3.5 on the other; an integer overflow wraps on one."""
    tree = sqlglot.parse_one(views(str, CATALOG_TABLES)[name], read="spark")
    for division in tree.find_all(exp.Div):
        assert isinstance(division.this, exp.Cast | exp.TryCast), division.sql()
    for product in tree.find_all(exp.Mul):
        assert product.find(exp.Cast, exp.TryCast), product.sql()
    assert not list(tree.find_all(exp.Lateral))
