"""Only what lies below a table's folder is its own, however its path is written."""

from __future__ import annotations

import posixpath
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft_audit.lake.lake_paths import first_not_below, first_outside

NAMES = st.text(alphabet="ab .%:=é-", min_size=1, max_size=6) | st.sampled_from(["..", ".", "%2e%2e", "%2F"])


@pytest.mark.parametrize(
    "path", ["part-0.parquet", "day=1/part-0.parquet", "a%20b/..c/part..0", "x=a%3Ab/part-0", "./p"]
)
def test_paths_of_our_own(path: str) -> None:
    assert first_outside(["part-1", path]) is None


@given(st.lists(NAMES, min_size=1, max_size=5))
def test_what_resolves_outside_is_never_taken_for_our_own(names: list[str]) -> None:
    path = "/".join(names)
    for read in (path, unquote(path), unquote(unquote(path))):
        if posixpath.normpath(posixpath.join("/lake/table", read)).startswith("/lake/table/"):
            continue
        if posixpath.normpath(posixpath.join("/lake/table", read)) != "/lake/table":
            assert first_outside([path]) == path


@pytest.mark.parametrize(
    ("uri", "is_below"),
    [
        ("file:///lake/table/part-0", True),
        ("file:/lake/table/a%20b/part-0", True),
        ("file:///lake/table-too/part-0", False),
        ("file:///lake/table/../other/part-0", False),
        ("file:///lake/table/%2e%2e/other/part-0", False),
        ("file:///elsewhere/part-0", False),
        ("s3a://bucket/lake/table/part-0", False),
    ],
)
def test_whole_addresses(uri: str, is_below: bool) -> None:
    assert first_not_below("file:/lake/table", ["file:///lake/table/part-1", uri]) == (None if is_below else uri)


def test_a_folder_with_characters_that_are_encoded() -> None:
    root = "s3a://bucket/my lake/größe=1"
    assert first_not_below(root, [f"s3a://bucket/{quote('my lake/größe=1')}/part-0"]) is None
    assert first_not_below(root, ["s3a://bucket-too/my%20lake/größe=1/part-0"]) is not None
