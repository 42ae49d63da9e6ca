"""What an incident is, and what its findings say of it.

They are gathered one by one, as a broker's loss may raise a million of them: of a finding 16 bytes stay, and as many
of a partition for each effect on it.
"""

from __future__ import annotations

import enum
import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kraft_audit.capture.continuity import run_begins
from kraft_audit.incidents.early_stops import EarlyStop, lacked
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.rule_model import LOSS, Finding, Severity
from kraft_audit.text.readable import duration, nouns, plural, when

INCIDENT_KEYS: Final = (
    *("cluster_id", "kind", "severity", "subject", "headline", "from_offset", "to_offset", "from_ms", "to_ms"),
    *("state", "is_open", "is_clean", "effects", "events", "rules", "finding_ids", "incident_id"),
)
"""The columns of an incident as a row."""


class IncidentKind(enum.StrEnum):
    """What happened, as the log shows it."""

    QUORUM = "quorum"
    CLUSTER_STOP = "cluster_stop"
    BROKER_LOSS = "broker_loss"
    BROKER_STOP = "broker_stop"
    BROKER_RESTART = "broker_restart"
    BROKER_FREEZE = "broker_freeze"
    RESTART_LOOP = "restart_loop"
    ROLL_TOO_FAST = "roll_too_fast"
    ROLE_CHANGE = "role_change"
    NO_LEADER = "no_leader"
    DECLARED_RESCUE = "declared_rescue"


class IncidentState(enum.StrEnum):
    """Whether an incident lasts. A cluster that was stopped in order, and is, alarms nobody."""

    OPEN = "open"
    STOPPED = "stopped"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True)
class IncidentEvent:
    """One line of an incident's story; `timestamp_ms` is None where no time is known."""

    timestamp_ms: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Incident:
    """Findings with one cause. Offsets and times are [from, to); `to_offset` and `to_ms` are None while it lasts.

    `is_clean` where every step was a controlled shutdown; `effects` are what it did to partitions, in words.
    `key` sets incidents of one family apart that begin at one offset. `rivals` says which causes remain while it lasts,
    `advice` what to do about it where its findings do not say it. `early_stops` makes it a roll that was too fast if
    partitions lacked somebody at one of them.
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
    rivals: str = ""
    advice: str = ""
    early_stops: tuple[EarlyStop, ...] = ()

    @property
    def severity(self) -> Severity:
        """The worst of its open findings, of all of them where it is resolved; low where it has none.

        Of a cluster that was stopped in order only what was lost counts.
        """
        counted = [finding for finding in self.findings if _counts(self, finding)]
        return max((finding.severity for finding in counted), key=lambda severity: severity.rank, default=Severity.LOW)

    @property
    def state(self) -> IncidentState:
        """Whether it lasts; a stop in order, which nobody has to act on, is told apart."""
        if not self.is_open:
            return IncidentState.RESOLVED
        return IncidentState.STOPPED if self.kind is IncidentKind.CLUSTER_STOP else IncidentState.OPEN


def _counts(incident: Incident, finding: Finding) -> bool:
    """Whether a finding says how severe its incident is."""
    is_of_stop = incident.kind is IncidentKind.CLUSTER_STOP and finding.rule != LOSS
    return finding.waiver is None and not is_of_stop and not (incident.is_open and finding.is_over)


def named_too_fast(incident: Incident, stops: Sequence[EarlyStop]) -> Incident:
    """An incident in which brokers were stopped too early in a roll. While a broker is lost, it keeps that name."""
    if incident.is_open and incident.kind is not IncidentKind.BROKER_STOP:
        return incident
    brokers = sorted({stop.broker_id for stop in stops})
    were = "was" if len(brokers) == 1 else "were"
    text = f"Roll too fast: {nouns('broker', brokers)} {were} stopped before the ISR was whole again"
    return replace(incident, kind=IncidentKind.ROLL_TOO_FAST, headline=text, advice=WAIT_FOR_THE_ISR)


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
        "state": incident.state.value,
        "events": [asdict(event) for event in incident.events],
        "rules": known.rules,
        "finding_ids": known.finding_ids,
    }
    return {name: row[name] for name in INCIDENT_KEYS}


EFFECTS: Final = (
    ("KP001", "down to one replica that can lead", False),
    ("KP002", "without a leader", True),
    ("KP005", "below min ISR: acks=all writes blocked", True),
    (LOSS, "may have lost acknowledged records", False),
)
"""What an incident does to partitions: the rule that counts it, the words, and whether its length is shown."""
BEGUN: Final = (("KP005", "acks=all writes blocked on {}"), ("KP002", "{} without a leader"))
"""What a step of an incident is shown with, where it began at that moment."""
WAIT_FOR_THE_ISR: Final = (
    "Start what is stopped, with its disk, and stop no other broker before this prints nothing:   kafka-topics "
    "--bootstrap-server HOST:PORT --describe --under-replicated-partitions"
)
"""What to do about a roll that goes on too fast."""
_DIGEST_BYTES: Final = 16
Digests = npt.NDArray[np.uint8]
"""A digest a row."""
_EFFECT_RULES: Final = frozenset(rule for rule, _, _ in EFFECTS)
_BEGUN_RULES: Final = frozenset(rule for rule, _ in BEGUN)


@dataclass(slots=True)
class _Subjects:
    """The distinct ones of some subjects, counted."""

    first: str = ""
    digests: bytearray = field(default_factory=bytearray)

    def add(self, subject: str) -> None:
        self.first = self.first or subject
        self.digests += hashlib.blake2b(subject.encode(), digest_size=_DIGEST_BYTES).digest()

    def count(self) -> int:
        return len(_distinct(self.digests))


class IncidentMembers:
    """The findings that an incident explains, as far as it counts them; with `keeps_ids` which they are, too."""

    def __init__(self, incident: Incident, *, keeps_ids: bool = False) -> None:
        self._incident = incident
        self._keeps_ids = keeps_ids
        self._times = {event.timestamp_ms for event in incident.events} - {None}
        self._ids = bytearray()
        self._rules: set[str] = set()
        self._severities: set[Severity] = set()
        self._affected: dict[str, _Subjects] = defaultdict(_Subjects)
        self._longest_ms: dict[str, int] = {}
        self._begun: dict[tuple[int, str], _Subjects] = defaultdict(_Subjects)
        self._lacked: dict[int, _Subjects] = defaultdict(_Subjects)
        self._lacking: dict[int, set[int]] = defaultdict(set)

    def see(self, history: ClusterHistory) -> None:
        """Notes which partitions lacked a broker that had just come back when another one left."""
        for stop in self._incident.early_stops:
            for before, names in lacked(history, stop):
                for name in names:
                    self._lacked[stop.from_offset].add(name)
                    self._lacking[stop.from_offset].add(before)

    def add(self, finding: Finding) -> None:
        rule = finding.rule
        if self._keeps_ids:
            self._ids += bytes.fromhex(finding.finding_id)
        self._rules.add(rule)
        if _counts(self._incident, finding):
            self._severities.add(finding.severity)
        if rule in _EFFECT_RULES:
            self._affected[rule].add(finding.subject)
            if finding.is_over and finding.to_ms is not None and finding.from_ms is not None:
                lasted_ms = finding.to_ms - finding.from_ms
                self._longest_ms[rule] = max(lasted_ms, self._longest_ms.get(rule, lasted_ms))
        if rule in _BEGUN_RULES and finding.from_ms is not None and finding.from_ms in self._times:
            self._begun[finding.from_ms, rule].add(finding.subject)

    def __bool__(self) -> bool:
        return bool(self._rules or self._lacked)

    def incident(self, findings: Sequence[Finding] = ()) -> Incident:
        """The incident with its effects, and with these findings."""
        events = tuple(self._with_begun(event) for event in self._incident.events)
        early = [stop for stop in self._incident.early_stops if stop.from_offset in self._lacked]
        known = named_too_fast(self._incident, early) if early else self._incident
        effects = (*map(self._lacked_text, early), *self._effects())
        return replace(known, findings=tuple(findings), effects=effects, events=events)

    def facts(self) -> IncidentFindings:
        """What a row of the incident says of its findings."""
        worst = max(self._severities, key=lambda severity: severity.rank, default=Severity.LOW)
        return IncidentFindings(worst, sorted(self._rules), _as_hexadecimal(_distinct(self._ids)))

    def _lacked_text(self, stop: EarlyStop) -> str:
        """Which partitions lacked whom, and since when those could have caught up."""
        names, brokers = self._lacked[stop.from_offset], sorted(self._lacking[stop.from_offset])
        what = names.first if names.count() == 1 else plural(names.count(), "partition")
        since = when(min(stop.back[broker].timestamp_ms for broker in brokers), self._incident.from_ms)
        text = f"{what} lacked {nouns('broker', brokers)}, back since {since}"
        return f"{text}, when broker {stop.broker_id} was stopped"

    def _effects(self) -> list[str]:
        effects = []
        for rule, text, is_timed in EFFECTS:
            if rule in self._affected:
                longest = ""
                if is_timed and rule in self._longest_ms and not self._incident.is_open:
                    longest = f" for at most {duration(self._longest_ms[rule])}"
                effects.append(f"{plural(self._affected[rule].count(), 'partition')} {text}{longest}")
        return effects

    def _with_begun(self, event: IncidentEvent) -> IncidentEvent:
        """A step of an incident with what began at that moment: acks=all writes blocked, partitions without a
        leader."""
        texts = []
        for rule, text in BEGUN:
            if event.timestamp_ms is not None and (subjects := self._begun.get((event.timestamp_ms, rule))) is not None:
                count = subjects.count()
                texts.append(text.format(subjects.first if count == 1 else f"{count} partitions"))
        return replace(event, text=f"{event.text}: {', '.join(texts)}") if texts else event


def _distinct(digests: bytearray) -> Digests:
    """Distinct digests, ascending."""
    ordered = np.sort(np.frombuffer(digests, f"S{_DIGEST_BYTES}"))
    distinct: Digests = ordered[run_begins(ordered)].view(np.uint8).reshape(-1, _DIGEST_BYTES)
    return distinct


def _as_hexadecimal(digests: Digests) -> pa.StringArray:
    """Each digest as text. There is no Python value of each: a million would take 100 MB."""
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    text = np.stack([digits[digests >> 4], digits[digests & 15]], axis=-1)
    ends = np.arange(len(digests) + 1, dtype=np.int32) * (2 * _DIGEST_BYTES)
    return pa.StringArray.from_buffers(len(digests), pa.py_buffer(ends), pa.py_buffer(text))
