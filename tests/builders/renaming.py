"""Other names for what a metadata log names: nodes, offsets, random ids, times, and what of a record is which.

Which field of a record is a node's id, an offset or a time is said once by the field's name, for every message of the
schemas (`test_rewritten_captures.py` wants each integer of the schemas in one of the sets).
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kraft_codec.schemas import Field, Message, Type

NODE_FIELDS = frozenset(
    {
        *("BrokerId", "ControllerId", "LeaderId", "VoterId", "VotedId", "Id"),
        *("Leader", "Replicas", "Isr", "RemovingReplicas", "AddingReplicas", "EligibleLeaderReplicas", "LastKnownElr"),
    }
)
"""Fields of type int32 that hold ids of nodes; a negative one is no node."""
OTHER_INT32_FIELDS = frozenset({"PartitionId", "LeaderEpoch", "PartitionEpoch", "Iterations"})
OFFSET_FIELDS = frozenset({"BrokerEpoch", "Epoch", "AppliedOffset"})
"""Fields of type int64 that hold offsets: a broker's epoch is the offset of its registration."""
TIME_FIELDS = frozenset({"IssueTimestamp", "MaxTimestamp", "ExpirationTimestamp", "LastContainedLogTimestamp"})
OTHER_INT64_FIELDS = frozenset({"NextProducerId"})

MOVED_MS = -(37 * 86_400_000 + 12_000)
"""Whole seconds, as meta.properties notes its time in seconds."""
ADDED_OFFSETS = 1_009
NO_OFFSET_MOVES = 2**63 - 1
"""As `first_moved`, of a log that holds no data."""
NODE_IDS_BELOW = 10_007
"""A prime: every node id below it gets another one, and their order is lost."""
RESERVED_UUIDS_BELOW = 100
"""As int128: Kafka gives the first ids a meaning (Uuid.java, DirectoryId.java)."""
NODE_RESOURCES = (4, 8)
"""ConfigResource.Type: a broker, a broker's loggers; their names are node ids, or empty for all."""
_PAIRS_CONFIG = re.compile(r"(?:leader|follower)\.replication\.throttled\.replicas")
_NODE_IN_TEXT = re.compile(r"\b((?:broker|node|voters?|controller) )(\d+)")
_OFFSET_IN_TEXT = re.compile(r"\b(offset )(\d+)|\b()(\d{20})(?=\.|-)")
_BYTE_IN_TEXT = re.compile(r"\bat byte \d+")


@dataclass(frozen=True, slots=True)
class Renaming:
    """`first_moved` is the first offset of a log that stands for another one; ids and times do not depend on the log.

    With `is_identity` everything keeps its name.
    """

    first_moved: int = 1
    is_identity: bool = False

    def node(self, node_id: int) -> int:
        if self.is_identity or node_id < 0:
            return node_id
        if node_id >= NODE_IDS_BELOW:
            raise ValueError(f"node {node_id}: expected one below {NODE_IDS_BELOW}")
        return (node_id + 1) * 7_919 % NODE_IDS_BELOW

    def offset(self, offset: int) -> int:
        return offset if self.is_identity or offset < self.first_moved else offset + ADDED_OFFSETS

    def time(self, time_ms: int) -> int:
        return time_ms if self.is_identity or time_ms <= 0 else time_ms + MOVED_MS

    def uuid(self, value: bytes) -> bytes:
        if self.is_identity or int.from_bytes(value) < RESERVED_UUIDS_BELOW:
            return value
        return b"\x40" + hashlib.sha256(value).digest()[:15]  # the text of it has no dash in front

    def uuid_text(self, text: str) -> str:
        """Another id as Kafka writes it; a text that is no id (a cluster id may be any) gets one too."""
        if self.is_identity or not text:
            return text
        try:
            value = base64.b64decode(text + "==", altchars=b"-_", validate=True)
        except ValueError:
            value = b""
        value = value if len(value) == 16 else hashlib.sha256(text.encode()).digest()[:16]
        return base64.urlsafe_b64encode(self.uuid(value)).decode().rstrip("=")

    def record(self, message: Message, values: Mapping[str, Any]) -> dict[str, Any]:
        """A record's fields with other names."""
        renamed = self._fields(message.fields, values)
        if message.name == "ConfigRecord":
            if values["resourceType"] in NODE_RESOURCES and values["resourceName"].isdigit():
                renamed["resourceName"] = str(self.node(int(values["resourceName"])))
            if values["value"] and _PAIRS_CONFIG.fullmatch(values["name"]):
                renamed["value"] = re.sub(r":(\d+)", lambda pair: f":{self.node(int(pair[1]))}", values["value"])
        return renamed

    def _fields(self, fields: Sequence[Field], values: Mapping[str, Any]) -> dict[str, Any]:
        renamed = dict(values)
        for field in fields:
            rename, value = self._renaming_of(field), values[field.json_name]
            if rename is not None and value is not None:
                renamed[field.json_name] = [rename(each) for each in value] if field.array else rename(value)
        return renamed

    def _renaming_of(self, field: Field) -> Callable[[Any], Any] | None:
        if field.type is Type.STRUCT:
            return lambda value: self._fields(field.fields, value)
        if field.type is Type.UUID:
            return self.uuid
        if field.type is Type.INT32 and field.name in NODE_FIELDS:
            return self.node
        if field.type is Type.INT64 and field.name in OFFSET_FIELDS:
            return self.offset
        return self.time if field.type is Type.INT64 and field.name in TIME_FIELDS else None

    def subject(self, text: str) -> str:
        """A finding's subject with other names; positions in files are left out, as records have other lengths."""
        text = _NODE_IN_TEXT.sub(lambda named: f"{named[1]}{self.node(int(named[2]))}", text)
        text = _OFFSET_IN_TEXT.sub(self._offset_in_text, text)
        return _BYTE_IN_TEXT.sub("at byte …", text)

    def _offset_in_text(self, found: re.Match[str]) -> str:
        if found[2] is not None:
            return f"{found[1]}{self.offset(int(found[2]))}"
        return f"{self.offset(int(found[4])):020d}"
