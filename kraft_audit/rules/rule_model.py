"""Rules, their thresholds and controls, and what they yield: cases, findings and evidence.

A rule reads a `ClusterHistory` and yields cases. A case becomes a finding with the rule's text around it. A finding is
known by (history, rule, kind, key), so that a re-run finds the same one; each of its episodes is a case of its own.
"""

from __future__ import annotations

import enum
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar, get_type_hints, overload

from kraft_codec.schemas import Dialect

if TYPE_CHECKING:
    from kraft_audit.rules.cluster_history import ClusterHistory


LOSS: Final = "KP020"
"""The rule about lost records: what was lost stays lost until a person acknowledges it."""


class Severity(enum.StrEnum):
    """critical: data lost or two truths possible; high: one failure away; medium: weakened; low: hygiene."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"

    rank: int


# An attribute: findings are ordered and counted by it a million times.
for _rank, _severity in enumerate(Severity):
    _severity.rank = _rank


class Status(enum.StrEnum):
    """The result of a rule; undecided always has a reason."""

    RAISED = "raised"
    CLEAR = "clear"
    UNDECIDED = "undecided"


class FindingState(enum.StrEnum):
    """What a finding asks of people now.

    `open` alone alarms: it was raised, lasts, and nobody accepted it. `folded` lasts only because the cluster was
    stopped in order. `resolved` is history. A person accepted what is `waived`, and a loss that is `acknowledged`; a
    declared rescue explains a waived one too. `clear` rules found nothing.
    """

    OPEN = "open"
    FOLDED = "folded"
    RESOLVED = "resolved"
    WAIVED = "waived"
    ACKNOWLEDGED = "acknowledged"
    UNDECIDED = "undecided"
    CLEAR = "clear"


ACCEPTED: Final = frozenset({FindingState.WAIVED, FindingState.ACKNOWLEDGED})
"""The states of a finding that a person, or a declared rescue, answers for."""


class RuleStatus(enum.StrEnum):
    """How far a rule can be relied on; an experimental one may still change what it raises."""

    STABLE = "stable"
    EXPERIMENTAL = "experimental"


class Scope(enum.StrEnum):
    """What the subject of a finding is."""

    VOTERS = "voters"
    LOG = "log"
    PARTITION = "partition"
    BROKER = "broker"
    CLUSTER = "cluster"


ControlName = Literal["durability", "change_management", "quorum_safety", "log_integrity", "access"]
CONTROLS: Final[Mapping[ControlName, str]] = {
    "durability": "Acknowledged records survive the loss of a broker.",
    "change_management": "Voters, replicas and features change one safe step at a time, to the end.",
    "quorum_safety": "One elected leader an epoch, majorities that meet, and one failure tolerated.",
    "log_integrity": "All replicas of the metadata log hold one whole history, bit for bit.",
    "access": "Listeners are encrypted, and no ACL lets every user do everything.",
}
"""The controls that an auditor asks for, each with its claim, in the order in which reports show them.

A control is not met while a finding of severity high or critical is open: a loss is, until a person acknowledges it.
Otherwise it is undecided if one of its rules is. Otherwise open findings of severity medium and acknowledged losses
weaken it. Otherwise it is met.
"""

RuleSettings = Mapping[str, float]
"""What a rules.yaml sets for one rule: values by the names of its thresholds."""
_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, slots=True)
class Threshold:
    """A number of a rule that people may change, as settings and pages show it; the unit ends its name."""

    name: str
    default: float
    comment: str


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The thresholds of a rule, as fields of a subclass that `threshold` gives; a rule without any has this one."""


def threshold(default: _Number, comment: str, *, key: str | None = None) -> _Number:
    """A field of Thresholds; `key` is its name in rules.yaml, where that is not the field's."""
    value: _Number = field(default=default, metadata={"comment": comment, "key": key})
    return value


@dataclass(frozen=True, slots=True)
class Evidence:
    """One fact that a finding rests on: where it stands on disk, what was there before and after, where known."""

    text: str
    offset: int | None = None
    epoch: int | None = None
    timestamp_ms: int | None = None
    node_id: int | None = None
    path: str | None = None
    file_name: str | None = None
    position: int | None = None
    before: str | None = None
    after: str | None = None


class DeferredEvidence(Sequence[Evidence]):
    """Evidence that is put into words when it is read: of ten thousand findings a person sees the first few.

    `make(*of)` makes it.
    """

    __slots__ = ("_known", "_make", "_of")

    def __init__(self, make: Callable[..., tuple[Evidence, ...]], *of: Any) -> None:
        self._make = make
        self._of = of
        self._known: tuple[Evidence, ...] | None = None

    def _facts(self) -> tuple[Evidence, ...]:
        if self._known is None:
            self._known = self._make(*self._of)
        return self._known

    def __len__(self) -> int:
        return len(self._facts())

    @overload
    def __getitem__(self, index: int) -> Evidence: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Evidence, ...]: ...
    def __getitem__(self, index: int | slice) -> Evidence | tuple[Evidence, ...]:
        return self._facts()[index]

    def __eq__(self, value: object) -> bool:
        return isinstance(value, Sequence) and self._facts() == tuple(value)

    def __hash__(self) -> int:
        return hash(self._facts())


class Case(NamedTuple):
    """What a rule function yields: one subject, one episode [from, to); to is None while it lasts.

    A case with `undecided` set is no finding: it says what could not be judged and why. `severity`, `why` and
    `what_to_do` are set where those of the rule do not fit, `key` where the subject is not what identifies it.
    `directory_id` is that of the node's disk that it is about (empty: the disk has none), as the node may have got
    another one since; None: the node's disk of now. A tuple, as Python makes these five times as fast as frozen
    dataclasses, and there may be fifty thousand; so is Finding.
    """

    subject: str
    summary: str
    from_offset: int | None = None
    to_offset: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    epoch: int | None = None
    evidence: Sequence[Evidence] = ()
    severity: Severity | None = None
    what_to_do: str | None = None
    undecided: str | None = None
    is_over: bool = False
    why: str | None = None
    key: str | None = None
    directory_id: str | None = None


def undecided(subject: str, reason: str, **where: int | None) -> Case:
    """A case that the captures do not decide."""
    return Case(subject, reason, undecided=reason, **where)  # type: ignore[arg-type]  # offsets and times by name


def case_at(row: Mapping[str, Any], subject: str, summary: str, **more: Any) -> Case:
    """A case that begins with a row of a table of changes."""
    return Case(subject, summary, from_offset=row["from_offset"], from_ms=row["timestamp_ms"], **more)


def evidence_at(row: Mapping[str, Any], text: str, **more: Any) -> Evidence:
    """A fact that a row of a table of changes states."""
    return Evidence(text, offset=row["from_offset"], timestamp_ms=row["timestamp_ms"], **more)


RuleFunction = Callable[["ClusterHistory", Any], Iterable[Case]]
"""A rule's function: of a history and of the rule's own subclass of Thresholds."""


KIPS: Final = "https://cwiki.apache.org/confluence/display/KAFKA/Kafka+Improvement+Proposals"
KAFKA_PAGES: Final = "https://kafka.apache.org/documentation/"
NO_RELEASE: Final = "none"
_REFERENCE: Final = re.compile(r"\b(KAFKA-|PR )([0-9]+)\b")
_TRACKERS: Final = {
    "KAFKA-": "https://issues.apache.org/jira/browse/KAFKA-",
    "PR ": "https://github.com/apache/kafka/pull/",
}


@dataclass(frozen=True, slots=True)
class RuleText:
    """What people read about a rule; `cases` hold what an entry says of a case that the rule's own words do not fit.

    `since` is the version of this tool that brought the rule. `releases` are the first and the last Kafka release that
    can show what it finds: empty for every KRaft release, without a last one where it is open, NO_RELEASE for a
    proposal that never shipped.
    """

    since: str
    status: RuleStatus
    raised_when: str
    why: str
    what_to_do: str
    sources: Sequence[str]
    releases: Sequence[str] = ()
    false_positives: Sequence[str] = ()
    cases: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def affected(self) -> str:
        """The Kafka releases in words."""
        if NO_RELEASE in self.releases:
            return "none (never shipped)"
        return " to ".join(self.releases) if len(self.releases) > 1 else f"{(*self.releases, '3.0')[0]} and later"

    @property
    def references(self) -> tuple[str, ...]:
        """Addresses of the issues and pull requests among the sources."""
        references = _REFERENCE.findall(" ".join(self.sources))
        return tuple(f"{_TRACKERS[kind]}{number}" for kind, number in dict.fromkeys(references))

    @property
    def address(self) -> str:
        """Where to read on: the first KIP among the sources, else the first issue, else Kafka's own pages."""
        named = re.findall(r"\bKIP-[0-9]+\b", " ".join(self.sources))
        return f"{KIPS}#{named[0]}" if named else next(iter(self.references), KAFKA_PAGES)


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: `id` and `name` never change. `needs` are the tables without which it says undecided.

    `asked_by` is for a rule that runs on request only: the threshold that asks for it, by not being 0.
    """

    id: str
    name: str
    severity: Severity
    scope: Scope
    control: ControlName
    needs: tuple[str, ...]
    text: RuleText
    function: RuleFunction
    limits: type[Thresholds] = Thresholds
    dialects: tuple[Dialect, ...] = tuple(Dialect)
    asked_by: str | None = None

    @property
    def thresholds(self) -> tuple[Threshold, ...]:
        """What people may change, in the order of the fields."""
        limits = self.limits()
        return tuple(
            Threshold(each.metadata["key"] or each.name, getattr(limits, each.name), each.metadata["comment"])
            for each in fields(limits)
        )

    @property
    def defaults(self) -> dict[str, float]:
        return {each.name: each.default for each in self.thresholds}

    def limits_of(self, settings: RuleSettings) -> Thresholds:
        """The thresholds as set, defaults where not; a fraction of what is counted is cut off."""
        if not settings:
            return self.limits()
        kinds = get_type_hints(self.limits)
        keys = {each.name: each.metadata["key"] or each.name for each in fields(self.limits)}
        return self.limits(**{name: kinds[name](settings[key]) for name, key in keys.items() if key in settings})


DECLARED_BY: Final = "kraft-audit rescue"
"""Who stands in the waiver of a finding that a declared rescue explains; FOR_EVER is until when."""
FOR_EVER: Final = "9999-12-31"


@dataclass(frozen=True, slots=True)
class Waiver:
    """A finding that a person accepts until a day; `cluster` and `subject` are exact, or shell patterns.

    `before_ms`: only what began before this time, which is how a loss is acknowledged without the next one.
    """

    rule: str
    cluster: str
    subject: str
    who: str
    why: str
    until: str
    before_ms: int | None = None


class Finding(NamedTuple):
    """A case with its rule: a row of the table `findings`. A rule that is clear has one with an empty subject.

    `incident_id` names the incident that explains it; it is `folded` where it lasts only because the cluster was
    stopped in order. Both are known once findings were folded into incidents.
    """

    finding_id: str
    cluster_id: str
    rule: str
    name: str
    severity: Severity
    scope: Scope
    status: Status
    subject: str
    summary: str
    reason: str | None
    from_offset: int | None
    to_offset: int | None
    from_ms: int | None
    to_ms: int | None
    epoch: int | None
    is_over: bool
    evidence: Sequence[Evidence]
    why: str
    what_to_do: str
    waiver: Waiver | None = None
    expired_waiver: Waiver | None = None
    folded: bool = False
    incident_id: str | None = None

    @property
    def state(self) -> FindingState:
        """What it asks of people now: open only where nothing explains, accepts or ended it."""
        if self.status is Status.CLEAR:
            return FindingState.CLEAR
        if self.is_over:
            return FindingState.RESOLVED
        if self.status is Status.UNDECIDED:
            return FindingState.UNDECIDED
        if self.folded:
            return FindingState.FOLDED
        if self.waiver is not None:
            return FindingState.ACKNOWLEDGED if self.rule == LOSS else FindingState.WAIVED
        return FindingState.OPEN

    @property
    def severity_now(self) -> Severity | None:
        """Its severity while it is open; None where it alarms nobody."""
        return self.severity if self.state is FindingState.OPEN else None

    @property
    def lasts(self) -> bool:
        """Whether it was raised, or could not be decided, and is not over at the end of the log."""
        return self.status is not Status.CLEAR and not self.is_over

    @property
    def is_declared(self) -> bool:
        """Whether a declared rescue explains it: then no person had to accept it."""
        return self.waiver is not None and self.waiver.who == DECLARED_BY


def finding_id(history_id: str, rule: str, kind: str, key: str) -> str:
    """A stable name of a finding: 32 hex digits."""
    text = "\0".join((history_id, rule, kind, key))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def finding_of(rule: Rule, cluster_id: str, case: Case, history_id: str = "", key: str | None = None) -> Finding:
    """A case with the rule's text around it; without `history_id` the cluster has one history, known by its own id."""
    status = Status.RAISED if case.undecided is None else Status.UNDECIDED
    # Positional, as there may be ten thousands of them and keywords cost time.
    return Finding(
        finding_id(history_id or cluster_id, rule.id, rule.scope.value, case.subject if key is None else key),
        cluster_id,
        rule.id,
        rule.name,
        case.severity or rule.severity,
        rule.scope,
        status,
        case.subject,
        case.summary,
        case.undecided,
        case.from_offset,
        case.to_offset,
        case.from_ms,
        case.to_ms,
        case.epoch,
        case.is_over or case.to_offset is not None,
        case.evidence,
        case.why or rule.text.why,
        case.what_to_do or rule.text.what_to_do,
    )


def clear_finding(rule: Rule, cluster_id: str, reason: str | None, history_id: str) -> Finding:
    """The finding of a rule that ran and found nothing."""
    case = Case("", reason or f"{rule.name}: nothing found")
    return finding_of(rule, cluster_id, case, history_id)._replace(status=Status.CLEAR)
