"""Patterns in the addresses of an object store match what Python's own glob matches in the same tree of folders."""

from __future__ import annotations

import glob
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyarrow import fs

from kraft_codec.errors import CodecError, InputError
from kraft_codec.storage import path_patterns
from kraft_codec.storage.path_patterns import matching_paths, outermost
from kraft_codec.storage.random_access import Limits

NAMES = st.sampled_from(["a", "ab", "b", "a.tgz", "b.zip", "notes.txt", "[x]"])
TREES = st.lists(st.lists(NAMES, min_size=1, max_size=4), min_size=1, max_size=12)
PATTERNS = st.lists(st.sampled_from(["*", "**", "a", "a*", "[ab]", "*.tgz", "b", "[!a]*"]), min_size=1, max_size=4)


def as_bucket(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    """Addresses s3://bucket/… name what lies below a folder."""

    def connect(address: str) -> tuple[fs.FileSystem, str, str]:
        return fs.LocalFileSystem(), str(root) + address.partition("?")[0].removeprefix("s3://bucket"), address

    monkeypatch.setattr(path_patterns, "connect", connect)


def grow(root: Path, tree: list[list[str]]) -> None:
    for names in tree:
        path = root.joinpath(*names)
        if any(parent.is_file() for parent in path.parents) or path.exists():
            continue
        if "." in names[-1]:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"")
        else:
            path.mkdir(parents=True)


@example([["a", "a.tgz"]], ["*", "*", "**"], False)
@given(TREES, PATTERNS, st.booleans())
def test_the_same_as_glob(tree: list[list[str]], pattern: list[str], is_closed: bool) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        root = Path(folder)
        grow(root, tree)
        as_bucket(patch, root)
        text = "/".join(pattern) + ("/" if is_closed else "")
        found = [Path(each) for each in glob.glob(f"{folder}/{text}", recursive=True)]  # noqa: PTH207
        wanted = {each for each in found if each.is_dir() or each.suffix in (".tgz", ".zip")}
        expected = [each for each in wanted if not wanted & set(each.parents)]
        addresses = matching_paths(f"s3://bucket/{text}?region=x")
        if not expected or not any(mark in text for mark in "*["):
            assert addresses == [f"s3://bucket/{text}?region=x"]
            return
        assert all(address.startswith("s3://bucket") and address.endswith("?region=x") for address in addresses)
        below = [address.removeprefix("s3://bucket").removesuffix("?region=x") for address in addresses]
        assert sorted(Path(folder + each) for each in below) == sorted(expected)
        locally = matching_paths(f"{folder}/{text}")
        assert sorted(map(Path, locally)) == sorted(expected)


def test_a_pattern_never_looks_into_log_dirs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nor among a copier's objects: `**` would list thousands of them."""
    listed = []
    real = path_patterns.names_in

    def names_in(store: fs.FileSystem, place: str) -> list[tuple[str, bool]]:
        listed.append(place.removeprefix(str(tmp_path)))
        return real(store, place)

    generation = "0123456789abcdef0123456789abcdef"
    for path in ("n1/__cluster_metadata-0/x", "n1/orders-0/x", f"c/1-abc/{generation}/objects", "deep/n2/logs"):
        (tmp_path / path).mkdir(parents=True)
    as_bucket(monkeypatch, tmp_path)
    monkeypatch.setattr(path_patterns, "names_in", names_in)
    assert matching_paths("s3://bucket/**/n*/") == ["s3://bucket/deep/n2", "s3://bucket/n1"]
    assert set(listed) == {"", "/c", "/c/1-abc", "/deep", "/deep/n2", "/deep/n2/logs", "/n1"}


def test_a_pattern_that_matches_too_much_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / str(number)).mkdir()
    as_bucket(monkeypatch, tmp_path)
    assert len(matching_paths("s3://bucket/*", Limits(directory_count=4))) == 4
    for pattern in ("*", "**/x"):
        with pytest.raises(InputError, match="more than 3 names"):
            matching_paths(f"s3://bucket/{pattern}", Limits(directory_count=3))


def test_a_folder_that_may_not_be_listed_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refused(store: fs.FileSystem, place: str) -> list[tuple[str, bool]]:
        raise CodecError(path_patterns.Reason.UNREADABLE, 0, "access denied")

    as_bucket(monkeypatch, tmp_path)
    monkeypatch.setattr(path_patterns, "names_in", refused)
    with pytest.raises(InputError, match=r"s3://bucket.*: access denied"):
        matching_paths("s3://bucket/a/*/")


def test_what_is_no_pattern_is_itself() -> None:
    for path in ("s3://bucket/a?x=*", "ftp://host/*", "/nothing/here", "file://elsewhere/x*"):
        assert matching_paths(path) == [path]


def test_only_the_outermost_paths_are_kept() -> None:
    assert outermost(["", "a"]) == [""], "all that lies below one place"
    assert outermost(["/x", "/a/b", "/a/b/c", "/a/b-c", "/a/b/"]) == ["/x", "/a/b", "/a/b-c"], "as they were given"
