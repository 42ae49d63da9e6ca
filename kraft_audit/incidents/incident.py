"""What an incident is."""

from __future__ import annotations

import enum
import hashlib
from dataclasses import asdict, dataclass
from typing import Any, Final

import pyarrow as pa

from kraft_audit.rules.rule_model import Finding, Severity

INCIDENT_KEYS: Final = (
    *("cluster_id", "kind", "severity", "subject", "headline", "from_offset", "to_offset", "from_ms", "to_ms"),
    *("is_open", "is_clean", "effects", "events", "rules", "finding_ids", "incident_id"),
)
"""The columns of an incident as a row."""


class IncidentKind(enum.StrEnum):
    """What happened, as the log shows it."""

    QUORUM = "quorum"
    CLUSTER_STOP = "cluster_stop"
    BROKER_LOSS = "broker_loss"
    BROKER_STOP = "broker_stop"
    BROKER_RESTART = "broker_restart"
    NO_LEADER = "no_leader"
    DECLARED_RESCUE = "declared_rescue"


@dataclass(frozen=True, slots=True)
class IncidentEvent:
    """One line of an incident's story; `timestamp_ms` is None where no time is known."""

    timestamp_ms: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Incident:
    """Findings with one cause. Offsets and times are [from, to); `to_offset` and `to_ms` are None while it lasts.

    `is_clean` where every step was a controlled shutdown; `effects` are what it did to partitions, in words.
    `key` sets incidents of one family apart that begin at one offset.
    """

    kind: IncidentKind
    subject: str
    headline: str
    from_offset: int | None
    from_ms: int | None
    to_offset: int | None = None
    to_ms: int | None = None
    is_open: bool = True
    is_clean: bool = False
    events: tuple[IncidentEvent, ...] = ()
    effects: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    incident_id: str = ""
    key: str = ""

    @property
    def severity(self) -> Severity:
        """The worst of its open findings, of all of them where it is resolved; low where it has none."""
        counted = [f for f in self.findings if f.waiver is None and not (self.is_open and f.is_over)]
        return max((finding.severity for finding in counted), key=lambda severity: severity.rank, default=Severity.LOW)


def incident_id(history_id: str, incident: Incident) -> str:
    """A stable name of an incident: 32 hex digits of its history, family and beginning; its kind may change."""
    has_own = incident.kind in (IncidentKind.QUORUM, IncidentKind.NO_LEADER, IncidentKind.DECLARED_RESCUE)
    family = f"{incident.kind.value if has_own else 'broker'} {incident.key}".rstrip()
    began = incident.from_ms if incident.from_offset is None else incident.from_offset
    return hashlib.blake2b("\0".join((history_id, family, str(began))).encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class IncidentFindings:
    """What a row of an incident says of its findings: the worst severity that counts, each rule and each id once.

    Ids are an Arrow array where they may be a million.
    """

    severity: Severity
    rules: list[str]
    finding_ids: list[str] | pa.StringArray


def incident_row(cluster_id: str, incident: Incident, of_findings: IncidentFindings | None = None) -> dict[str, Any]:
    """An incident with the columns of INCIDENT_KEYS; `of_findings` where it does not hold its findings itself."""
    findings = incident.findings
    known = of_findings or IncidentFindings(
        incident.severity,
        sorted({finding.rule for finding in findings}),
        sorted({finding.finding_id for finding in findings}),
    )
    row = {
        **{name: getattr(incident, name) for name in INCIDENT_KEYS if hasattr(incident, name)},
        "cluster_id": cluster_id,
        "kind": incident.kind.value,
        "severity": known.severity.value,
        "events": [asdict(event) for event in incident.events],
        "rules": known.rules,
        "finding_ids": known.finding_ids,
    }
    return {name: row[name] for name in INCIDENT_KEYS}
