"""What Kafka's releases support: names of features, metadata.version levels, and the levels at which behaviour changed.

The only place for these facts. A Kafka release adds its levels here (MetadataVersion.java, `Features` of that release).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

Release = tuple[int, ...]
"""A release or a release line by its numbers: (3, 9, 1) is 3.9.1, (3, 9) all of 3.9."""

METADATA_VERSION_FEATURE: Final = "metadata.version"
ELR_FEATURE: Final = "eligible.leader.replicas.version"
KRAFT_VERSION_FEATURE: Final = "kraft.version"

METADATA_VERSIONS: Final[Mapping[int, str]] = {
    1: "3.0-IV1",
    2: "3.1-IV0",
    3: "3.2-IV0",
    4: "3.3-IV0",
    5: "3.3-IV1",
    6: "3.3-IV2",
    7: "3.3-IV3",
    8: "3.4-IV0",
    9: "3.5-IV0",
    10: "3.5-IV1",
    11: "3.5-IV2",
    12: "3.6-IV0",
    13: "3.6-IV1",
    14: "3.6-IV2",
    15: "3.7-IV0",
    16: "3.7-IV1",
    17: "3.7-IV2",
    18: "3.7-IV3",
    19: "3.7-IV4",
    20: "3.8-IV0",
    21: "3.9-IV0",
    22: "4.0-IV0",
    23: "4.0-IV1",
    24: "4.0-IV2",
    25: "4.0-IV3",
    26: "4.1-IV0",
    27: "4.1-IV1",
    28: "4.2-IV0",
    29: "4.2-IV1",
    30: "4.3-IV0",
    31: "4.4-IV0",
    32: "4.4-IV1",
    33: "4.4-IV2",
    34: "4.5-IV0",
}
"""metadata.version levels by the names that kafka-features and kafka-storage use."""

LINE_OF_LEVEL: Final[Mapping[int, Release]] = {
    1: (3, 0), 2: (3, 1), 3: (3, 2), 7: (3, 3), 8: (3, 4), 11: (3, 5), 14: (3, 6), 19: (3, 7), 20: (3, 8), 21: (3, 9),
    25: (4, 0), 27: (4, 1), 29: (4, 2), 30: (4, 3), 33: (4, 4),
}  # fmt: skip
"""The release line by the newest production metadata.version that its nodes support."""

METADATA_CHANGES: Final[Mapping[int, str]] = {
    3: "leader recovery state of partitions",
    5: "NoOp records",
    6: "changes of broker registrations",
    7: "controlled shutdown in broker registrations",
    8: "the migration from ZooKeeper",
    11: "SCRAM credentials",
    13: "metadata transactions",
    14: "delegation tokens",
    15: "controller registrations",
    17: "log directories of replicas (JBOD)",
    23: "eligible leader replicas",
    30: "cordoned log dirs",
    32: "ranges of addresses as hosts of ACLs",
    33: "unregistration of controllers",
}
"""What a metadata.version brought into the log that no earlier one can hold: Kafka refuses to go below such a level
(MetadataVersion.didMetadataChange)."""

FEATURE_DEFAULTS: Final[Mapping[str, Mapping[int, int]]] = {
    KRAFT_VERSION_FEATURE: {21: 1},
    ELR_FEATURE: {26: 1},
    "group.version": {22: 1},
    "share.version": {28: 1, 31: 2},
    "streams.version": {29: 1},
    "transaction.version": {24: 2},
}
"""From which metadata.version on a release sets a feature to a level (FeatureVersion.bootstrapMetadataVersion)."""

FIRST_LEVEL_WITH_CONTROLLED_SHUTDOWN: Final = 7
"""From metadata.version 3.3-IV3 on the log says that a broker is in controlled shutdown (KIP-841)."""

FIRST_LEVEL_WITH_WAITING_WATERMARK: Final = 15
"""From metadata.version 3.7-IV0 on the high watermark waits for min.insync.replicas members (KAFKA-15583)."""

FIRST_LEVEL_WITH_CONTROLLER_REGISTRATIONS: Final = 15
"""From metadata.version 3.7-IV0 on controllers register, and block what they do not support (KIP-919)."""

FIRST_LEVEL_WITH_ELR: Final = 23
"""From metadata.version 4.0-IV1 on the feature eligible.leader.replicas.version can be on (KIP-966)."""

FIRST_LEVEL_WITHOUT_ELR_WIPE: Final = 30
"""Controllers that support 4.3-IV0 no longer wipe the ELR with a directory assignment (KAFKA-19840, PR 20716)."""

FIRST_LEVEL_THAT_UPGRADES_KRAFT_VERSION: Final = 26
"""Software of 4.1 and later raises kraft.version from 0 to 1 (KAFKA-16538)."""

FIRST_LEVEL_WITH_ACL_RANGES: Final = 32
"""From metadata.version 4.4-IV1 on the host of an ACL may be a range of addresses."""

FIRST_LEVEL_THAT_UNREGISTERS_CONTROLLERS: Final = 33
"""UnregisterControllerRecord needs metadata.version 4.4-IV2 (KIP-1312)."""

FIRST_LEVEL_WITH_TIMED_SNAPSHOTS: Final = 8
"""Software of 3.4 and later writes a snapshot every hour (metadata.log.max.snapshot.interval.ms, KIP-876)."""

LAST_LEVEL_WITH_SNAPSHOTS_INSIDE_BATCHES: Final = 21
"""Controllers up to 3.9 may end a snapshot inside a batch (KAFKA-17713)."""


def version_text(level: int) -> str:
    """A level of metadata.version as people read it: `25 (4.0-IV3)`."""
    return f"{level} ({METADATA_VERSIONS[level]})" if level in METADATA_VERSIONS else str(level)


def release_text(release: Release) -> str:
    """A release as people write it: 3.9.1."""
    return ".".join(map(str, release))


def release_needed(metadata_version: int) -> Release | None:
    """The first release line whose software reads a log of this metadata.version; None where it is newer than all."""
    return next((LINE_OF_LEVEL[level] for level in sorted(LINE_OF_LEVEL) if level >= metadata_version), None)


def release_needed_by(metadata_version: int | None, kraft_version: int | None) -> Release | None:
    """The first release line whose software reads a log with these levels; None where no known one does, or is needed.

    `kraft_version` 1 is a control record that no software before 3.9 writes or follows.
    """
    by_metadata = None if metadata_version is None else release_needed(metadata_version)
    if metadata_version is not None and by_metadata is None:
        return None
    return max((each for each in (by_metadata, (3, 9) if kraft_version else None) if each is not None), default=None)


def parse_release(text: str) -> Release:
    """The numbers of a release. Raises ValueError where it is none."""
    return tuple(int(part) for part in text.split("."))


def feature_default(feature: str, metadata_version: int) -> int:
    """The level that a feature has in a new cluster of that metadata.version (Feature.defaultLevel)."""
    levels = FEATURE_DEFAULTS.get(feature, {})
    return max((level for since, level in levels.items() if since <= metadata_version), default=0)


def metadata_version_of(text: str) -> int:
    """The metadata.version of a release (4.3, 4.3.1) or of a level's name (4.3-IV0), as kafka-features takes them.

    Raises ValueError, which names the known releases.
    """
    for level, name in METADATA_VERSIONS.items():
        if name == text:
            return level
    try:
        line = parse_release(text)[:2]
    except ValueError:
        line = ()
    for level, known in LINE_OF_LEVEL.items():
        if known == line:
            return level
    known_lines = ", ".join(map(release_text, LINE_OF_LEVEL.values()))
    raise ValueError(f"no release {text!r} is known: there are {known_lines}")
