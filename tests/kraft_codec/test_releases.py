"""The tables of releases agree with each other."""

from __future__ import annotations

from kraft_codec.schemas.releases import (
    FIRST_LEVEL_WITH_ELR,
    FIRST_LEVEL_WITHOUT_ELR_WIPE,
    LAST_LEVEL_WITH_SNAPSHOTS_INSIDE_BATCHES,
    LINE_OF_LEVEL,
    METADATA_VERSIONS,
    parse_release,
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


def test_where_behaviour_changed() -> None:
    assert METADATA_VERSIONS[FIRST_LEVEL_WITH_ELR] == "4.0-IV1"
    assert METADATA_VERSIONS[FIRST_LEVEL_WITHOUT_ELR_WIPE] == "4.3-IV0"
    assert LINE_OF_LEVEL[LAST_LEVEL_WITH_SNAPSHOTS_INSIDE_BATCHES] == (3, 9)


def test_releases_read_back() -> None:
    assert parse_release("3.9.1") == (3, 9, 1)
    assert release_text((3, 9, 1)) == "3.9.1"
