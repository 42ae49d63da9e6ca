"""Records of the membership protocols that never shipped, as their proposals describe them.

KIP-642 ("Dynamic quorum reassignment") and KIP-856 ("KRaft disk failure recovery") reuse type numbers that shipped
Kafka gave to other records, so a log of theirs is read with a dialect (`kraft_codec.schemas.control.Dialect`).
"""

from __future__ import annotations

from typing import Final

from kraft_codec.schemas.model import array, int16, int32, message, string, uuid

_VOTER_ID = (int32("VoterId"),)
_VOTER_KIP856 = (int32("VoterId"), uuid("VoterUuid", "1+"))

VOTER_ASSIGNMENT: Final = message(
    2,
    "VoterAssignmentMessage",
    "0",
    string("ClusterId"),
    array("CurrentVoters", _VOTER_ID),
    array("TargetVoters", _VOTER_ID, nullable="0+"),
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
