"""The tables of releases agree with each other."""

from __future__ import annotations

import pytest

from kraft_codec.schemas.releases import (
    FEATURE_DEFAULTS,
    FIRST_LEVEL_WITH_ELR,
    FIRST_LEVEL_WITHOUT_ELR_WIPE,
    LAST_LEVEL_WITH_SNAPSHOTS_INSIDE_BATCHES,
    LINE_OF_LEVEL,
    METADATA_VERSIONS,
    feature_default,
    metadata_version_of,
    parse_release,
    release_needed,
    release_needed_by,
    release_text,
)


def test_levels_have_no_gaps_and_names_ascend() -> None:
    assert list(METADATA_VERSIONS) == list(range(1, len(METADATA_VERSIONS) + 1))
    versions = [(parse_release(name.split("-IV")[0]), int(name.split("-IV")[1])) for name in METADATA_VERSIONS.values()]
    assert versions == sorted(set(versions))


def test_a_lines_level_is_named_for_the_line() -> None:
    for level, line in LINE_OF_LEVEL.items():
        assert METADATA_VERSIONS[level].startswith(f"{release_text(line)}-IV")
    assert list(LINE_OF_LEVEL.values()) == sorted(set(LINE_OF_LEVEL.values()))


def test_the_first_release_that_reads_a_log() -> None:
    """Kafka 3.9.2 dies at the first record of a 4.0 log that it does not know; 4.0-IV0 to IV3 are levels of 4.0."""
    needed = {level: release_needed(level) for level in (1, 21, 22, 25, 26, 33, 999)}
    assert needed == {1: (3, 0), 21: (3, 9), 22: (4, 0), 25: (4, 0), 26: (4, 1), 33: (4, 4), 999: None}


@pytest.mark.parametrize(
    ("metadata_version", "kraft_version", "needed"),
    [
        (None, None, None),
        (20, None, (3, 8)),
        (20, 0, (3, 8)),
        (20, 1, (3, 9)),
        (None, 1, (3, 9)),
        (25, 1, (4, 0)),
        (999, 1, None),
    ],
)
def test_the_first_release_that_reads_both_versions(
    metadata_version: int | None, kraft_version: int | None, needed: tuple[int, int] | None
) -> None:
    assert release_needed_by(metadata_version, kraft_version) == needed


def test_where_behaviour_changed() -> None:
    assert METADATA_VERSIONS[FIRST_LEVEL_WITH_ELR] == "4.0-IV1"
    assert METADATA_VERSIONS[FIRST_LEVEL_WITHOUT_ELR_WIPE] == "4.3-IV0"
    assert LINE_OF_LEVEL[LAST_LEVEL_WITH_SNAPSHOTS_INSIDE_BATCHES] == (3, 9)


def test_releases_read_back() -> None:
    assert parse_release("3.9.1") == (3, 9, 1)
    assert release_text((3, 9, 1)) == "3.9.1"


@pytest.mark.parametrize(
    ("text", "level"), [("4.3", 30), ("4.3.1", 30), ("4.4", 33), ("4.4-IV0", 31), ("3.9", 21), ("3.3", 7)]
)
def test_a_release_is_known_by_its_line_or_a_level_by_its_name(text: str, level: int) -> None:
    assert metadata_version_of(text) == level


@pytest.mark.parametrize("text", ["5.0", "4", "", "four", "4.4-IV9"])
def test_an_unknown_release_is_refused_with_the_known_ones(text: str) -> None:
    with pytest.raises(ValueError, match=r"3\.9, 4\.0, 4\.1"):
        metadata_version_of(text)


def test_levels_of_features_never_fall_with_the_release() -> None:
    for feature in FEATURE_DEFAULTS:
        levels = [feature_default(feature, level) for level in METADATA_VERSIONS]
        assert levels == sorted(levels)
        assert levels[0] == 0 < levels[-1]
