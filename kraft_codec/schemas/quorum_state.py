"""The fields of a `quorum-state` file: one line of JSON whose `data_version` picks the version (QuorumStateData)."""

from __future__ import annotations

from typing import Final

from kraft_codec.schemas.model import array, int32, int64, message, string, uuid

_VOTER = (int32("VoterId", "0"),)

QUORUM_STATE: Final = message(
    -1,
    "QuorumStateData",
    "0-1",
    string("ClusterId", "0"),
    int32("LeaderId", default=-1),
    int32("LeaderEpoch", default=-1),
    int32("VotedId", default=-1),
    uuid("VotedDirectoryId", "1+"),
    int64("AppliedOffset", "0"),
    array("CurrentVoters", _VOTER, "0", nullable="0"),
)

# KIP-856's text keeps ClusterId and AppliedOffset in version 1, and names the voted replica's UUID `VotedUuid`.
QUORUM_STATE_KIP856: Final = message(
    -1,
    "QuorumStateData",
    "0-1",
    string("ClusterId"),
    int32("LeaderId", default=-1),
    int32("LeaderEpoch", default=-1),
    int32("VotedId", default=-1),
    uuid("VotedUuid", "1+", nullable="1+", default=None),
    int64("AppliedOffset"),
    array("CurrentVoters", _VOTER, "0", nullable="0"),
)
