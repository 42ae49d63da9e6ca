"""The control records of a KRaft log and its snapshots, as shipped (KIP-595, KIP-630, KIP-853).

A control record's key is int16 version 0 and int16 type. Its value has no version in front: the reader uses the
version compiled into it, which is 0 for every type in 3.9.1 to 4.4.0 (ControlRecordUtils), and each value carries a
`Version` field of its own that says the same.

KIP-642 and KIP-856 never shipped, and their records reuse type numbers that shipped Kafka gave to others: a log of
theirs is read with its own `Dialect`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from kraft_codec.schemas.model import (
    Message,
    array,
    int16,
    int32,
    int64,
    message,
    string,
    struct,
    uint16,
    uuid,
)


class Dialect(enum.StrEnum):
    """Which membership protocol wrote a log: declared by the owner of the log, never guessed."""

    KIP853 = "kip853"
    KIP856 = "kip856"
    KIP642 = "kip642"


_VOTER_KIP595 = (int32("VoterId"), uuid("VoterDirectoryId", "1+"))

LEADER_CHANGE: Final = message(
    2,
    "LeaderChangeMessage",
    "0-1",
    int16("Version"),
    int32("LeaderId"),
    array("Voters", _VOTER_KIP595),
    array("GrantingVoters", _VOTER_KIP595),
)
SNAPSHOT_HEADER: Final = message(3, "SnapshotHeaderRecord", "0", int16("Version"), int64("LastContainedLogTimestamp"))
SNAPSHOT_FOOTER: Final = message(4, "SnapshotFooterRecord", "0", int16("Version"))
KRAFT_VERSION: Final = message(5, "KRaftVersionRecord", "0", int16("Version"), int16("KRaftVersion"))
VOTERS: Final = message(
    6,
    "VotersRecord",
    "0",
    int16("Version"),
    array(
        "Voters",
        (
            int32("VoterId"),
            uuid("VoterDirectoryId"),
            array("Endpoints", (string("Name"), string("Host"), uint16("Port"))),
            struct("KRaftVersionFeature", int16("MinSupportedVersion"), int16("MaxSupportedVersion")),
        ),
    ),
)
CONTROL_RECORDS: Final[tuple[Message, ...]] = (
    LEADER_CHANGE,
    SNAPSHOT_HEADER,
    SNAPSHOT_FOOTER,
    KRAFT_VERSION,
    VOTERS,
)

# The records of the membership protocols that never shipped, as their proposals describe them: KIP-642 ("Dynamic
# quorum reassignment") and KIP-856 ("KRaft disk failure recovery").
_VOTER_KIP642 = (int32("VoterId"),)
_VOTER_KIP856 = (int32("VoterId"), uuid("VoterUuid", "1+"))

VOTER_ASSIGNMENT: Final = message(
    2,
    "VoterAssignmentMessage",
    "0",
    string("ClusterId"),
    array("CurrentVoters", _VOTER_KIP642),
    array("TargetVoters", _VOTER_KIP642, nullable="0+"),
)

LEADER_CHANGE_KIP856: Final = message(
    2,
    "LeaderChangeMessage",
    "0-1",
    int16("Version"),
    int32("LeaderId"),
    array("Voters", _VOTER_KIP856),
    array("GrantingVoters", _VOTER_KIP856),
)

# The proposal names both records and says that they hold the replica's id and UUID, without a field table.
ADD_VOTER: Final = message(5, "AddVoterRecord", "0", int16("Version"), int32("VoterId"), uuid("VoterUuid"))
REMOVE_VOTER: Final = message(6, "RemoveVoterRecord", "0", int16("Version"), int32("VoterId"), uuid("VoterUuid"))


@dataclass(frozen=True, slots=True)
class ControlType:
    """A control record type in one dialect.

    `number` stands in the key, `name` is the type as tables show it, `dump_label` is what kafka-dump-log prints
    before the JSON, `version` is the schema version with which values are read and written.
    """

    number: int
    name: str
    dump_label: str
    message: Message
    version: int = 0


_SNAPSHOT_HEADER = ControlType(3, "SNAPSHOT_HEADER", "SnapshotHeader", SNAPSHOT_HEADER)
_SNAPSHOT_FOOTER = ControlType(4, "SNAPSHOT_FOOTER", "SnapshotFooter", SNAPSHOT_FOOTER)

CONTROL_TYPES: Final[dict[Dialect, dict[int, ControlType]]] = {
    Dialect.KIP853: {
        2: ControlType(2, "LEADER_CHANGE", "LeaderChange:", LEADER_CHANGE),
        3: _SNAPSHOT_HEADER,
        4: _SNAPSHOT_FOOTER,
        5: ControlType(5, "KRAFT_VERSION", "KRaftVersion", KRAFT_VERSION),
        6: ControlType(6, "KRAFT_VOTERS", "KRaftVoters", VOTERS),
    },
    # KIP-856 leaves its type numbers open ("TBD"): the next free ones of its time are taken.
    Dialect.KIP856: {
        2: ControlType(2, "LEADER_CHANGE", "LeaderChange:", LEADER_CHANGE_KIP856, version=1),
        3: _SNAPSHOT_HEADER,
        4: _SNAPSHOT_FOOTER,
        5: ControlType(5, "ADD_VOTER", "AddVoter", ADD_VOTER),
        6: ControlType(6, "REMOVE_VOTER", "RemoveVoter", REMOVE_VOTER),
    },
    # KIP-642 gives type 2 to VoterAssignment and KIP-595's text type 3 to LeaderChange; snapshots follow.
    Dialect.KIP642: {
        2: ControlType(2, "VOTER_ASSIGNMENT", "VoterAssignment", VOTER_ASSIGNMENT),
        3: ControlType(3, "LEADER_CHANGE", "LeaderChange:", LEADER_CHANGE),
        4: ControlType(4, "SNAPSHOT_HEADER", "SnapshotHeader", SNAPSHOT_HEADER),
        5: ControlType(5, "SNAPSHOT_FOOTER", "SnapshotFooter", SNAPSHOT_FOOTER),
    },
}

CONTROL_TYPE_BY_NAME: Final[dict[Dialect, dict[str, ControlType]]] = {
    dialect: {control.name: control for control in types.values()} for dialect, types in CONTROL_TYPES.items()
}
