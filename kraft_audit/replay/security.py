"""ACLs, client quotas, SCRAM credentials, delegation tokens and producer id blocks.

AclsDelta, ClientQuotasDelta, ScramDelta, DelegationTokenDelta, ProducerIdsDelta of Kafka 4.3.0. Secrets arrive as
fingerprints already: what is told here is that they changed, never what they are.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Final

from kraft_audit.replay.history import Change, History
from kraft_audit.replay.records import ENVELOPE
from kraft_audit.replay.tables import SECURITY_CHANGES
from kraft_codec.contract import Table
from kraft_codec.uuids import uuid_text

_UNTOLD: Final = frozenset({*ENVELOPE, "base_offset", "unknown_tagged_fields"})


class SecurityHistory(History):
    """`security_changes`."""

    table: ClassVar[Table] = SECURITY_CHANGES

    def changes(self, name: str, row: Mapping[str, Any]) -> Iterator[Change]:
        """Records that set a subject carry its whole state, those that remove it its key."""
        kind, subject_of = _SUBJECTS[name]
        subject = (kind, subject_of(row))
        removes = name.startswith("Remove") or bool(row.get("remove"))
        told = {"kind": kind, "subject": subject[1], "state": None}
        if not removes:
            told["state"] = _json(row)
            yield Change(subject, "set", told)
        elif subject in self.state:
            yield Change(subject, "removed", None, told)
        elif kind != "CLIENT_QUOTA":
            self.problems.append((row["offset"], f"unknown_{kind.lower()}"))

    messages: ClassVar[tuple[str, ...]] = (
        "AccessControlEntryRecord",
        "RemoveAccessControlEntryRecord",
        "ClientQuotaRecord",
        "UserScramCredentialRecord",
        "RemoveUserScramCredentialRecord",
        "DelegationTokenRecord",
        "RemoveDelegationTokenRecord",
        "ProducerIdsRecord",
    )


def _quota(row: Mapping[str, Any]) -> str:
    entity = {part["entity_type"]: part["entity_name"] for part in row["entity"]}
    return json.dumps({**dict(sorted(entity.items())), "key": row["key"]}, ensure_ascii=False)


def _scram(row: Mapping[str, Any]) -> str:
    return f"{row['mechanism']} {row['name']}"


def _acl(row: Mapping[str, Any]) -> str:
    return uuid_text(row["id"])


def _token(row: Mapping[str, Any]) -> str:
    return str(row["token_id"])


_SUBJECTS: Final[Mapping[str, tuple[str, Callable[[Mapping[str, Any]], str]]]] = {
    "AccessControlEntryRecord": ("ACL", _acl),
    "RemoveAccessControlEntryRecord": ("ACL", _acl),
    "ClientQuotaRecord": ("CLIENT_QUOTA", _quota),
    "UserScramCredentialRecord": ("SCRAM", _scram),
    "RemoveUserScramCredentialRecord": ("SCRAM", _scram),
    "DelegationTokenRecord": ("DELEGATION_TOKEN", _token),
    "RemoveDelegationTokenRecord": ("DELEGATION_TOKEN", _token),
    "ProducerIdsRecord": ("PRODUCER_IDS", lambda row: "next"),
}


def _json(row: Mapping[str, Any]) -> str:
    fields = {name: value for name, value in row.items() if name not in _UNTOLD}
    return json.dumps(fields, default=_bytes_text, sort_keys=True, ensure_ascii=False)


def _bytes_text(value: bytes) -> str:
    """Of what columns hold, bytes alone are unknown to JSON."""
    return base64.b64encode(value).decode("ascii")
